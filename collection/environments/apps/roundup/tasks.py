"""Tasks at the issue tracker: templates, and checks of what it holds."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from collection.environments.apps.roundup.site import (
    FACTS,
    KEYWORDS,
    ME,
    PAPERS,
    PEOPLE,
    PRIORITIES,
    SAVED,
    STATUSES,
    WORK,
    Issue,
    Person,
    Query,
    Roundup,
    Tracker,
)
from collection.environments.apps.tasks import AppTask, Ending, choose, make_task


@dataclasses.dataclass(frozen=True)
class Goal:
    """What a task asks for; `answer` is "" if it asks for none."""

    words: str
    after: Tracker
    answer: str = ""


Template = Callable[[int], Goal]
# An issue and a seed -> the issue changed, and values for the words.
Change = Callable[[Issue, int], tuple[Issue, Mapping[str, Any]]]
Wanted = Callable[[Issue], object]


def roundup_tasks(application: Roundup, seed: int) -> list[AppTask]:
    """Returns one task of each template."""
    return [_task(application, name, template(seed), seed) for name, template in TEMPLATES.items()]


def _task(application: Roundup, name: str, goal: Goal, seed: int) -> AppTask:
    def check(end: Ending) -> bool:
        return application.work() == goal.after and (not goal.answer or end.answer.strip() == goal.answer)

    return make_task(application, name, seed, f"{goal.words} The tracker is {application.url}/.", check)


def _issues(wanted: Wanted) -> list[tuple[int, Issue]]:
    return [(number, issue) for number, issue in WORK.issues.items() if wanted(issue)]


def _any(_: Issue) -> bool:
    return True


def _other(old: str, values: Sequence[str], seed: int) -> str:
    return choose([one for one in values if one != old], seed)


def _question(words: str, form: str, answer: str) -> Goal:
    return Goal(f"{words} Answer with {form} alone. Change nothing.", WORK, answer)


def _asked(
    words: str, form: str, offset: int, answer: Callable[[Issue], str], wanted: Wanted = _any
) -> Template:
    """A question about an issue, which is found by its title."""

    def goal(seed: int) -> Goal:
        _, issue = choose(_issues(wanted), seed, offset)
        return _question(words.format(title=issue.title), form, answer(issue))

    return goal


def _number(issue: Issue) -> str:
    return next(str(number) for number, one in WORK.issues.items() if one == issue)


def _replacement(issue: Issue) -> str:
    return str(next(iter(issue.superseder))) if issue.superseder else _number(issue)


def _figure(text: str) -> str:
    return "".join(filter(str.isdigit, text))


def _fact(seed: int) -> Goal:
    _, issue = choose(_issues(lambda one: len(one.messages) > 1 and _figure(one.messages[1][1])), seed, 2)
    text = issue.messages[1][1]
    what = next(what for said, what in FACTS if said.format(_figure(text)) == text)
    words = f'Find out {what}: it is in a message of the issue "{issue.title}".'
    return _question(words, "the number", _figure(text))


def _said(seed: int) -> Goal:
    number, issue = choose(
        _issues(lambda one: len(one.messages) > 1 and _figure(one.messages[1][1])), seed, 7
    )
    words = f'Which issue has the message "{issue.messages[1][1]}"?'
    return _question(words, "the number of the issue", str(number))


def _counted(words: str, **filters: Sequence[str]) -> Template:
    """A question for the number of issues that some fields choose."""

    def goal(seed: int) -> Goal:
        chosen = {name: choose(values, seed, at) for at, (name, values) in enumerate(filters.items())}
        count = sum(_matches(issue, chosen) for issue in WORK.issues.values())
        return _question(words.format(**chosen), "the number", str(count))

    return goal


def _matches(issue: Issue, filters: Mapping[str, str]) -> bool:
    return all(
        value in issue.keywords if name == "keyword" else getattr(issue, name) == value
        for name, value in filters.items()
    )


def _open(seed: int) -> Goal:
    name = choose(list(PEOPLE), seed)
    count = len(_issues(lambda one: one.assignedto == name and one.status != "resolved"))
    return _question(
        f"How many issues that are not resolved are assigned to {name}?", "the number", str(count)
    )


def _saved_count(seed: int) -> Goal:
    name = choose(list(SAVED), seed)
    count = sum(_matches(issue, SAVED[name]) for issue in WORK.issues.values())
    return _question(f'How many issues does your saved query "{name}" list?', "the number", str(count))


def _phone(seed: int) -> Goal:
    person = PEOPLE[choose(list(PEOPLE)[1:], seed)]
    return _question(
        f"Which phone number has {person.realname}?", "the number, as in 555-0100,", person.phone
    )


_STRANGERS = ("Ada Falk", "Bruno Gold", "Cleo Hart")


def _phone_of_either(seed: int) -> Goal:
    """For every other seed, the first one is not there."""
    first, second = choose(list(PEOPLE), seed), choose(list(PEOPLE), seed, 2)
    name = choose(_STRANGERS, seed) if seed % 2 else PEOPLE[first].realname
    words = (
        f"Which phone number has {name}? If the tracker has no user of that name, give the phone number "
        f"of {PEOPLE[second].realname} instead."
    )
    return _question(words, "the number, as in 555-0100,", PEOPLE[second if seed % 2 else first].phone)


# Changes.


def _changed(words: str, change: Change, offset: int, wanted: Wanted = _any) -> Template:
    """A change of one issue; the words have its `number` or `title`, and the values of the change."""

    def goal(seed: int) -> Goal:
        number, issue = choose(_issues(wanted), seed, offset)
        after, values = change(issue, seed)
        text = words.format(**{"number": number, "title": issue.title, **values})
        return Goal(text, WORK.with_issue(number, after))

    return goal


def _set(**fields: Sequence[str]) -> Change:
    """Other values of fields."""

    def change(issue: Issue, seed: int) -> tuple[Issue, Mapping[str, Any]]:
        new = {name: _other(getattr(issue, name), values, seed) for name, values in fields.items()}
        return dataclasses.replace(issue, **new), new

    return change


_NOTES = (
    "The part has arrived.",
    "Please look at it on Friday.",
    "The inspector agrees.",
    "To be done before the gala.",
)
_NEW_TITLES = (
    *("Buffer lamp hangs crooked", "Coach heating stays cold", "Ladder of the tower wobbles"),
    *("Gate of the depot will not lock", "Loudspeaker on platform two crackles"),
)
_NEW_KEYWORDS = ("steam", "rails", "museum night", "insurance")


def _retitle(issue: Issue, seed: int) -> tuple[Issue, Mapping[str, Any]]:
    title = choose(_NEW_TITLES, seed)
    return dataclasses.replace(issue, title=title), {"title": title}


def _assign(issue: Issue, seed: int) -> tuple[Issue, Mapping[str, Any]]:
    name = _other(issue.assignedto, list(PEOPLE), seed)
    return issue.assigned(name), {"name": name}


def _unassign(issue: Issue, seed: int) -> tuple[Issue, Mapping[str, Any]]:
    return dataclasses.replace(issue, assignedto=""), {}


def _add_keyword(issue: Issue, seed: int) -> tuple[Issue, Mapping[str, Any]]:
    keyword = choose(sorted(set(KEYWORDS) - issue.keywords), seed)
    return dataclasses.replace(issue, keywords=issue.keywords | {keyword}), {"keyword": keyword}


def _remove_keyword(issue: Issue, seed: int) -> tuple[Issue, Mapping[str, Any]]:
    keyword = choose(sorted(issue.keywords), seed)
    return dataclasses.replace(issue, keywords=issue.keywords - {keyword}), {"keyword": keyword}


def _add_nosy(issue: Issue, seed: int) -> tuple[Issue, Mapping[str, Any]]:
    name = choose(sorted(set(PEOPLE) - issue.nosy), seed)
    return dataclasses.replace(issue, nosy=issue.nosy | {name}), {"name": name}


def _remove_nosy(issue: Issue, seed: int) -> tuple[Issue, Mapping[str, Any]]:
    name = choose(sorted(issue.nosy), seed)
    return dataclasses.replace(issue, nosy=issue.nosy - {name}), {"name": name}


def _supersede(issue: Issue, seed: int) -> tuple[Issue, Mapping[str, Any]]:
    other, _ = choose(_issues(lambda one: one.status != "resolved" and one != issue), seed, 9)
    after = dataclasses.replace(issue, superseder=frozenset({other}), status="resolved")
    return after, {"other": other}


def _note(issue: Issue, seed: int) -> tuple[Issue, Mapping[str, Any]]:
    text = choose(_NOTES, seed)
    return issue.with_note(text), {"text": text}


def _note_and_status(issue: Issue, seed: int) -> tuple[Issue, Mapping[str, Any]]:
    text, status = choose(_NOTES, seed, 1), _other(issue.status, STATUSES, seed)
    return issue.with_note(text, status=status), {"text": text, "status": status}


def _note_and_assign(issue: Issue, seed: int) -> tuple[Issue, Mapping[str, Any]]:
    text, name = choose(_NOTES, seed, 2), _other(issue.assignedto, list(PEOPLE), seed)
    return issue.with_note(text).assigned(name), {"text": text, "name": name}


def _hand_back(issue: Issue, seed: int) -> tuple[Issue, Mapping[str, Any]]:
    """The author of a message is found by its text."""
    author, said = issue.messages[1]
    priority = _other(issue.priority, PRIORITIES, seed)
    return issue.assigned(author, priority=priority), {"said": said, "priority": priority}


def _remove_message(issue: Issue, seed: int) -> tuple[Issue, Mapping[str, Any]]:
    return dataclasses.replace(issue, messages=issue.messages[:-1]), {"text": issue.messages[-1][1]}


def _remove_file(issue: Issue, seed: int) -> tuple[Issue, Mapping[str, Any]]:
    ((name, *_),) = issue.files
    return dataclasses.replace(issue, files=frozenset()), {"file": name}


def _rename_file(issue: Issue, seed: int) -> tuple[Issue, Mapping[str, Any]]:
    ((old, *rest),) = issue.files
    name = f"{choose(PAPERS, seed)}-of-spring-{10 + seed % 80}.txt"
    return dataclasses.replace(issue, files=frozenset({(name, *rest)})), {"file": old, "name": name}


def _new(seed: int) -> Goal:
    issue = Issue(choose(_NEW_TITLES, seed), choose(PRIORITIES, seed, 1))
    words = f'Report a new issue "{issue.title}" with the priority {issue.priority}.'
    return Goal(words, WORK.with_new(issue))


def _new_with_all(seed: int) -> Goal:
    text, name, keyword = choose(_NOTES, seed), choose(list(PEOPLE)[1:], seed), choose(KEYWORDS, seed, 2)
    issue = Issue(
        choose(_NEW_TITLES, seed, 1),
        choose(PRIORITIES, seed, 2),
        choose(STATUSES[1:-1], seed),
        name,
        frozenset({ME, name}),
        frozenset({keyword}),
        messages=((ME, text),),
    )
    words = (
        f'Report a new issue "{issue.title}" with the message "{text}": priority {issue.priority}, status '
        f"{issue.status}, assigned to {name}, with the keyword {keyword}."
    )
    return Goal(words, WORK.with_new(issue))


def _new_superseder(seed: int) -> Goal:
    number, issue = choose(_issues(lambda one: not one.superseder), seed, 6)
    new = Issue(choose(_NEW_TITLES, seed, 2), choose(PRIORITIES, seed, 3))
    words = (
        f'Report a new issue "{new.title}" with the priority {new.priority}, and then enter it as the '
        f"superseder of issue {number}."
    )
    after = dataclasses.replace(issue, superseder=frozenset({len(WORK.issues) + 1}))
    return Goal(words, WORK.with_new(new).with_issue(number, after))


def _ensure(seed: int) -> Goal:
    """For every other seed, the issue is not there."""
    number, issue = choose(_issues(_any), seed, 3)
    priority = _other(issue.priority, PRIORITIES, seed)
    title = choose(_NEW_TITLES, seed, 3) if seed % 2 else issue.title
    words = (
        f'If the tracker has an issue "{title}", set its priority to {priority}. If it has none, report '
        f"it as a new issue with the priority {priority}."
    )
    changed = dataclasses.replace(issue, priority=priority)
    return Goal(
        words, WORK.with_new(Issue(title, priority)) if seed % 2 else WORK.with_issue(number, changed)
    )


def _keyword_if_missing(seed: int) -> Goal:
    number, issue = choose(_issues(lambda one: not one.keywords), seed)
    keyword = choose(_NEW_KEYWORDS if seed % 2 else KEYWORDS, seed)
    words = f'Give issue {number} the keyword "{keyword}"; if there is no such keyword yet, create it first.'
    after = WORK.with_issue(number, dataclasses.replace(issue, keywords=frozenset({keyword})))
    return Goal(words, dataclasses.replace(after, keywords=after.keywords | {keyword}))


def _new_keyword(seed: int) -> Goal:
    keyword = choose(_NEW_KEYWORDS, seed, 1)
    words = f'Create the keyword "{keyword}".'
    return Goal(words, dataclasses.replace(WORK, keywords=WORK.keywords | {keyword}))


def _rename_keyword(seed: int) -> Goal:
    old, new = choose(KEYWORDS, seed), choose(_NEW_KEYWORDS, seed, 2)
    return Goal(f'Rename the keyword "{old}" to "{new}".', WORK.renamed(old, new))


def _own_phone(seed: int) -> Goal:
    phone = f"555-02{10 + seed % 80}"
    after = WORK.with_person(ME, dataclasses.replace(PEOPLE[ME], phone=phone))
    return Goal(f"Change your own phone number to {phone}.", after)


def _organisation(seed: int) -> Goal:
    name = choose(list(PEOPLE)[1:], seed)
    values = sorted({person.organisation for person in PEOPLE.values()})
    organisation = _other(PEOPLE[name].organisation, values, seed)
    words = f"{PEOPLE[name].realname} has moved: change the organisation of this user to {organisation}."
    after = WORK.with_person(name, dataclasses.replace(PEOPLE[name], organisation=organisation))
    return Goal(words, after)


def _newcomer(seed: int) -> tuple[str, Person, str]:
    realname = choose(_STRANGERS, seed)
    login = realname.split()[0].lower()
    person = Person(realname, organisation="Workshop", address=f"{login}{seed}@museum.example")
    words = (
        f'Add a user with the name "{realname}", the login name "{login}", the organisation '
        f'"{person.organisation}" and the e-mail address {person.address}; no password is needed'
    )
    return login, person, words


def _new_person(seed: int) -> Goal:
    login, person, words = _newcomer(seed)
    return Goal(f"{words}.", WORK.with_person(login, person))


def _new_person_assigned(seed: int) -> Goal:
    login, person, words = _newcomer(seed)
    number, issue = choose(_issues(_any), seed, 8)
    after = WORK.with_person(login, person).with_issue(number, issue.assigned(login))
    return Goal(f"{words}. Then assign issue {number} to the new user.", after)


def _save_query(seed: int) -> Goal:
    name = choose(("Morning round", "For the meeting", "Before the gala", "Next week"), seed)
    filters = {"status": choose(STATUSES, seed, 1), "priority": choose(PRIORITIES, seed, 2)}
    words = (
        f"Search for the issues with the status {filters['status']} and the priority {filters['priority']}, "
        f'and save this search as a query with the name "{name}".'
    )
    queries = {**WORK.queries, (ME, name): Query(frozenset(filters.items()))}
    return Goal(words, dataclasses.replace(WORK, queries=queries))


def _delete_query(seed: int) -> Goal:
    name = choose(list(SAVED), seed, 1)
    queries = {key: query for key, query in WORK.queries.items() if key != (ME, name)}
    return Goal(f'Delete your saved query "{name}".', dataclasses.replace(WORK, queries=queries))


def _leave_out(seed: int) -> Goal:
    name = choose(list(SAVED), seed, 2)
    query = dataclasses.replace(WORK.queries[ME, name], listed=False)
    words = f'Remove your saved query "{name}" from the list "Your Queries", but do not delete it.'
    return Goal(words, dataclasses.replace(WORK, queries={**WORK.queries, (ME, name): query}))


def _two(seed: int) -> Goal:
    (first, one), (second, other) = choose(_issues(_any), seed, 1), choose(_issues(_any), seed, 5)
    priority, status = _other(one.priority, PRIORITIES, seed), _other(other.status, STATUSES, seed)
    words = (
        f'Set the priority of the issue "{one.title}" to {priority}, and the status of the issue '
        f'"{other.title}" to {status}.'
    )
    after = WORK.with_issue(first, dataclasses.replace(one, priority=priority))
    return Goal(words, after.with_issue(second, dataclasses.replace(other, status=status)))


def _same_as(seed: int) -> Goal:
    (first, one) = choose(_issues(lambda issue: issue.assignedto), seed, 4)
    (second, other) = choose(
        _issues(lambda issue: issue.assignedto != one.assignedto and issue.priority != one.priority), seed, 3
    )
    words = f"Give issue {second} the priority and the assignee of issue {first}."
    return Goal(words, WORK.with_issue(second, other.assigned(one.assignedto, priority=one.priority)))


def _several(first: str, second: str) -> list[tuple[tuple[str, str], list[tuple[int, Issue]]]]:
    """Pairs of values that two or three issues have in common."""
    groups: dict[tuple[str, str], list[tuple[int, Issue]]] = {}
    for number, issue in WORK.issues.items():
        if getattr(issue, second):
            groups.setdefault((getattr(issue, first), getattr(issue, second)), []).append((number, issue))
    return [(pair, found) for pair, found in sorted(groups.items()) if len(found) in (2, 3)]


def _reassign_all(seed: int) -> Goal:
    (status, old), found = choose(_several("status", "assignedto"), seed)
    new = _other(old, list(PEOPLE), seed)
    after = WORK
    for number, issue in found:
        after = after.with_issue(number, issue.assigned(new))
    return Goal(f"Assign all issues with the status {status} that are assigned to {old} to {new}.", after)


def _raise_all(seed: int) -> Goal:
    (priority, name), found = choose(_several("priority", "assignedto"), seed)
    new = _other(priority, PRIORITIES, seed)
    after = WORK
    for number, issue in found:
        after = after.with_issue(number, dataclasses.replace(issue, priority=new))
    words = f"All issues of the priority {priority} that are assigned to {name} get the priority {new}."
    return Goal(f"{words} This includes those that are resolved.", after)


QUESTIONS: dict[str, Template] = {
    "priority": _asked(
        'Which priority has the issue "{title}"?', "the priority", 0, lambda one: one.priority
    ),
    "status": _asked('Which status has the issue "{title}"?', "the status", 1, lambda one: one.status),
    "assignee": _asked(
        'Who is the issue "{title}" assigned to?',
        "the login name",
        2,
        lambda one: one.assignedto,
        lambda one: one.assignedto,
    ),
    "number": _asked('Which number has the issue "{title}"?', "the number", 3, _number),
    "creator": _asked(
        'Who created the issue "{title}"?', "the login name", 4, lambda one: one.messages[0][0]
    ),
    "keyword": _asked(
        'Which keyword has the issue "{title}"?',
        "the keyword",
        0,
        lambda one: "".join(one.keywords),
        lambda one: len(one.keywords) == 1,
    ),
    "superseder": _asked(
        'Which issue is the superseder of the issue "{title}"?',
        "its number",
        0,
        _replacement,
        lambda one: one.superseder,
    ),
    "superseder-or-itself": _asked(
        'Which issue is the superseder of the issue "{title}"? If it has none, give the number of this one.',
        "the number",
        4,
        _replacement,
        lambda one: one.superseder or one.status == "done-cbb",
    ),
    "file": _asked(
        'What is the name of the file of the issue "{title}"?',
        "the name",
        1,
        lambda one: "".join(name for name, *_ in one.files),
        lambda one: one.files,
    ),
    "last-author": _asked(
        'Who wrote the last message of the issue "{title}"?',
        "the login name",
        7,
        lambda one: one.messages[-1][0],
        lambda one: one.messages[-1][0] != one.messages[0][0],
    ),
    "assignee-phone": _asked(
        'What is the phone number of the person the issue "{title}" is assigned to?',
        "the number, as in 555-0100,",
        5,
        lambda one: PEOPLE[one.assignedto].phone,
        lambda one: one.assignedto,
    ),
    "fact": _fact,
    "said": _said,
    "count-status": _counted("How many issues have the status {status}?", status=STATUSES),
    "count-keyword": _counted("How many issues have the keyword {keyword}?", keyword=KEYWORDS),
    "count-open": _open,
    "saved-query": _saved_count,
    "phone": _phone,
    "phone-of-either": _phone_of_either,
}
CHANGES: dict[str, Template] = {
    "set-priority": _changed(
        "Set the priority of issue {number} to {priority}.", _set(priority=PRIORITIES), 0
    ),
    "set-status": _changed("Set the status of issue {number} to {status}.", _set(status=STATUSES), 1),
    "set-both": _changed(
        'Set the priority of the issue "{title}" to {priority} and its status to {status}.',
        _set(priority=PRIORITIES, status=STATUSES),
        2,
    ),
    "rename": _changed('Change the title of issue {number} to "{title}".', _retitle, 3),
    "assign": _changed('Assign the issue "{title}" to {name}.', _assign, 4),
    "unassign": _changed(
        "Issue {number} is to be assigned to no one: take its assignee away.",
        _unassign,
        5,
        lambda one: one.assignedto,
    ),
    "add-keyword": _changed(
        "Add the keyword {keyword} to those of issue {number}.", _add_keyword, 6, lambda one: one.keywords
    ),
    "remove-keyword": _changed(
        "Take the keyword {keyword} away from issue {number}.", _remove_keyword, 7, lambda one: one.keywords
    ),
    "add-nosy": _changed(
        "Add {name} to the nosy list of issue {number}.",
        _add_nosy,
        8,
        lambda one: len(one.nosy) < len(PEOPLE),
    ),
    "remove-nosy": _changed("Take {name} off the nosy list of issue {number}.", _remove_nosy, 9),
    "supersede": _changed(
        "Issue {number} is replaced by issue {other}: enter {other} as its superseder, and set its status to "
        "resolved.",
        _supersede,
        0,
        lambda one: not one.superseder,
    ),
    "note": _changed('Add the message "{text}" to issue {number}.', _note, 1),
    "note-and-status": _changed(
        'Add the message "{text}" to the issue "{title}", and set its status to {status}.',
        _note_and_status,
        2,
    ),
    "note-and-assign": _changed(
        'Add the message "{text}" to the issue "{title}", and assign it to {name}.', _note_and_assign, 3
    ),
    "hand-back": _changed(
        'Assign the issue "{title}" to the author of its message "{said}", and set its priority to '
        "{priority}.",
        _hand_back,
        4,
        lambda one: len(one.messages) > 1 and one.messages[1][0] != one.assignedto,
    ),
    "remove-message": _changed(
        'Remove the message "{text}" from the issue "{title}".',
        _remove_message,
        5,
        lambda one: len(one.messages) > 1 and one.status in STATUSES[3:6],
    ),
    "remove-file": _changed(
        'Remove the file {file} from the issue "{title}".', _remove_file, 6, lambda one: one.files
    ),
    "rename-file": _changed(
        'Rename the file {file} of the issue "{title}" to {name}.', _rename_file, 7, lambda one: one.files
    ),
    "new": _new,
    "new-with-all": _new_with_all,
    "new-superseder": _new_superseder,
    "ensure": _ensure,
    "keyword-if-missing": _keyword_if_missing,
    "new-keyword": _new_keyword,
    "rename-keyword": _rename_keyword,
    "own-phone": _own_phone,
    "organisation": _organisation,
    "new-person": _new_person,
    "new-person-assigned": _new_person_assigned,
    "save-query": _save_query,
    "delete-query": _delete_query,
    "leave-out": _leave_out,
    "two": _two,
    "same-as": _same_as,
    "reassign-all": _reassign_all,
    "raise-all": _raise_all,
}
TEMPLATES = QUESTIONS | CHANGES
