"""The words of `tests.mining.proof_mining`."""

PAGE = """\
# Failure-mode mining on pairs whose divergence is known

    make proof-mining

runs `{command}`,
which writes this page.

**Every pair on this page is made up.** Planted and unplanted pairs are generated (`tests/mining/planted`:
two walks over a small made-up site, filled up with elements of real pages); labelled cases and told
contrasts are written by hand (`tests/mining/labelled`). No run of a real model on a real site is among them,
and a case's label is its writer's alone. So the page says that the miner finds what it is meant to find where
that is known, not how often it is right on real runs.

Rules and weights were tuned on planted and unplanted seeds 0-19 and on the {tuned} labelled cases, and the
scale of the scores on the four told contrasts. Nothing was tuned on the seeds from {first} on, nor on the
{held_out} cases held out. Seeds from {first} on are new pairs, but of the same stories.

Labels are the rules' (no model is asked); each pair is mined by itself, with the recipe's gates.

{goals}

## Planted divergences

Seeds {first}-{last} of each category. *Step found*: the pair is kept at the planted success step, so the RL
corpus gets that prompt. *Pair found*: the localization step, too, is one at which the run stands before that
decision. *Label right*: the rules name the planted failure mode; *other labels*: the commonest three.

| category | pairs | mean success steps | step found | pair found | label right | other labels |
|---|---|---|---|---|---|---|
{planted}

Of {kept} kept pairs {elsewhere} are kept at another step: those would be wrong prompts. A step drawn from the
success's candidates would be the planted one in {chance} of the pairs.

Labels are worse than steps: {mislabelled} pairs are labelled otherwise than planted. The label is a soft
prior, so in {found_mislabelled} of them the step is found all the same; but it is by labels that the corpus
is balanced. Balancing is not part of this page. It is stricter about runtime failures: of {runtime} kept
pairs labelled `runtime_evaluation`, {runtime_trusted} pass its gate.

## Nothing planted

Seeds {first}-{last_unplanted}, kinds in turns. The second run failed, or was longer, for no decision at an
aligned state: the judge saw the same actions otherwise; the runs differ by looking around, by searching or by
spelling alone; the browser was elsewhere; the record lost its pages. None should be kept.

| kind | pairs | kept | decisions |
|---|---|---|---|
{unplanted}

## Misses

Planted steps missed: {missed}. Unplanted pairs kept: {false}. Steps found beside another localization step:
{other_side}. Shown, in that order: {shown}. The decision is `kept`, or the gate that no candidate passed.
Steps count from 1; *planted* is the success step and every localization step that would do.

| pair | decision | label | chosen | planted | state | action | category | total \
| closure | violation | settled |
|---|---|---|---|---|---|---|---|---|---|---|---|
{listed}

## Rule labels beside the writers'

The first guess of the rules on the {tuned} cases they were tuned on, and on the {held_out} held out.

| category | tuned on | held out |
|---|---|---|
{labels}

Rows: the writer's label; columns: the rules', by number. A cell: of those tuned on + of those held out.

| | {numbers} |
{rules}
{confusion}

## Contrasts told in the paper

RMSWeb tells four mined pairs, in a line each. Their pages and the steps around them are this project's, so
S_total may differ by up to {tolerance}.

| contrast | failure mode | label | told steps | chosen steps | told S_total | S_total | S_state | S_action \
| S_category | as told |
|---|---|---|---|---|---|---|---|---|---|---|
{told}
"""
