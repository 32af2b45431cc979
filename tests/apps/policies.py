"""Policies written by hand, one for each template of tasks at the applications."""

from __future__ import annotations

from tests.apps.actor import Policy
from tests.apps.docs_policies import DOCS_POLICIES
from tests.apps.helpdesk_policies import HELPDESK_POLICIES
from tests.apps.ihatemoney_policies import IHATEMONEY_POLICIES
from tests.apps.machina_policies import MACHINA_POLICIES
from tests.apps.oscar_policies import OSCAR_POLICIES
from tests.apps.roundup_policies import ROUNDUP_POLICIES
from tests.apps.trac_policies import TRAC_POLICIES
from tests.apps.wiki_policies import WIKI_POLICIES

_BY_APPLICATION = {
    "docs": DOCS_POLICIES,
    "oscar": OSCAR_POLICIES,
    "wiki": WIKI_POLICIES,
    "ihatemoney": IHATEMONEY_POLICIES,
    "trac": TRAC_POLICIES,
    "roundup": ROUNDUP_POLICIES,
    "machina": MACHINA_POLICIES,
    "helpdesk": HELPDESK_POLICIES,
}
POLICIES: dict[str, Policy] = {
    f"{application}/{name}": policy
    for application, policies in _BY_APPLICATION.items()
    for name, policy in policies.items()
}
