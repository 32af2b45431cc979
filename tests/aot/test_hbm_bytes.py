"""Memory traffic of loops: of a program counted by hand, and of one that XLA compiles for this machine."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rmsweb_jax.aot.hbm_bytes import Collective, call_bytes, collectives, iteration_bytes

KIB = 1024
PROGRAM = """HloModule jit_f, is_scheduled=true

%sliced (param_0: f32[8,256], param_1: s32[]) -> f32[1,256] {
  %param_0 = f32[8,256]{1,0:T(8,128)} parameter(0)
  %param_1 = s32[]{:T(128)S(6)} parameter(1)
  %zero = s32[]{:T(128)} constant(0)
  ROOT %cut = f32[1,256]{1,0:T(1,128)} dynamic-slice(%param_0, %param_1, %zero), dynamic_slice_sizes={1,256}
}

%written (param_0.1: bf16[4,8,128], param_1.1: bf16[4,1,128]) -> bf16[4,8,128] {
  %param_0.1 = bf16[4,8,128]{2,1,0:T(8,128)(2,1)} parameter(0)
  %param_1.1 = bf16[4,1,128]{2,1,0:T(2,128)(2,1)S(1)} parameter(1)
  %zero.1 = s32[]{:T(128)} constant(0)
  ROOT %put = bf16[4,8,128]{2,1,0:T(8,128)(2,1)} \
dynamic-update-slice(%param_0.1, %param_1.1, %zero.1, %zero.1)
}

%body (state: (f32[8,256], bf16[4,8,128], s32[])) -> (f32[8,256], bf16[4,8,128], s32[]) {
  %state = (f32[8,256]{1,0:T(8,128)}, bf16[4,8,128]{2,1,0:T(8,128)(2,1)}, s32[]{:T(128)S(6)}) parameter(0)
  %table = f32[8,256]{1,0:T(8,128)} get-tuple-element(%state), index=0
  %ring = bf16[4,8,128]{2,1,0:T(8,128)(2,1)} get-tuple-element(%state), index=1
  %turn = s32[]{:T(128)S(6)} get-tuple-element(%state), index=2
  %row = f32[1,256]{1,0:T(1,128)S(1)} fusion(%table, %turn), kind=kLoop, calls=%sliced
  %fetch = (f32[8,256]{1,0:T(8,128)S(1)}, f32[8,256]{1,0:T(8,128)}, u32[]{:S(2)}) copy-start(%table)
  %fetched = f32[8,256]{1,0:T(8,128)S(1)} copy-done(%fetch)
  %token = bf16[4,1,128]{2,1,0:T(2,128)(2,1)S(1)} custom-call(%fetched, %row), custom_call_target="kernel"
  %gathered = (f32[8,256]{1,0}, f32[16,256]{1,0}) all-gather-start(%table), dimensions={0}
  %everyone = f32[16,256]{1,0} all-gather-done(%gathered)
  %next = bf16[4,8,128]{2,1,0:T(8,128)(2,1)} fusion(%ring, %token), kind=kLoop, calls=%written
  ROOT %out = (f32[8,256]{1,0:T(8,128)}, bf16[4,8,128]{2,1,0:T(8,128)(2,1)}, s32[]{:T(128)S(6)}) \
tuple(%table, %next, %turn)
}

ENTRY %main (start: (f32[8,256], bf16[4,8,128], s32[])) -> (f32[8,256], bf16[4,8,128], s32[]) {
  %start = (f32[8,256]{1,0:T(8,128)}, bf16[4,8,128]{2,1,0:T(8,128)(2,1)}, s32[]{:T(128)S(6)}) parameter(0)
  ROOT %loop = (f32[8,256]{1,0:T(8,128)}, bf16[4,8,128]{2,1,0:T(8,128)(2,1)}, s32[]{:T(128)S(6)}) \
while(%start), condition=%going_on, body=%body
}
"""


def test_an_iteration_counted_by_hand():
    row, table, ring = 1 * KIB, 8 * KIB, 8 * KIB
    # The row's slice, the table into fast memory, the table and two of it gathered, and every tile of the
    # ring, of which one row of eight is new, read and written.
    assert iteration_bytes(PROGRAM) == row + table + 3 * table + 2 * ring


def test_whole_tiles_are_only_written():
    whole = PROGRAM.replace(
        "bf16[4,1,128]{2,1,0:T(2,128)(2,1)S(1)}", "bf16[4,8,128]{2,1,0:T(8,128)(2,1)S(1)}"
    )
    assert iteration_bytes(PROGRAM) - iteration_bytes(whole) == 8 * KIB


def test_a_program_without_a_loop_counts_nothing():
    text = jax.jit(lambda x: x @ x).lower(jnp.ones((8, 8))).compile().as_text()
    assert iteration_bytes(text) == 0


@pytest.mark.parametrize("rows", [64, 128])
def test_an_iteration_of_a_program_that_xla_compiles(rows):
    def run(kernel, x):
        return jax.lax.while_loop(lambda x: x.sum() < 1, lambda x: jnp.tanh(x @ kernel), x)

    kernel, x = np.zeros((512, 512), np.float32), np.zeros((rows, 512), np.float32)
    moved = iteration_bytes(jax.jit(run).lower(kernel, x).compile().as_text())
    # The kernel once; the states between the product and what follows it a few times.
    assert kernel.nbytes + 2 * x.nbytes <= moved <= kernel.nbytes + 8 * x.nbytes


# A loop as the TPU compiler writes it: no trip count, a counter that rises by 2 while it is below 8.
COUNTED = """HloModule jit_f, is_scheduled=true

%offloaded (param_0.3: f32[8,256]) -> f32[8,256] {
  %param_0.3 = f32[8,256]{1,0:T(8,128)} parameter(0)
  ROOT %swapped = f32[8,256]{1,0:T(8,128)} all-to-all(%param_0.3), replica_groups={{0,1,2,3}}, dimensions={0}
}

%wrapped (param_0.4: f32[8,256]) -> f32[8,256] {
  %param_0.4 = f32[8,256]{1,0:T(8,128)} parameter(0)
  ROOT %given = f32[8,256]{1,0:T(8,128)} custom-call(%param_0.4), custom_call_target="sparsecore", \
called_computations={%offloaded}
}

%all-reduce-scatter (param_0.2: f32[8,256]) -> f32[2,256] {
  %param_0.2 = f32[8,256]{1,0:T(8,128)} parameter(0)
  %sum = f32[8,256]{1,0:T(8,128)} all-reduce(%param_0.2), replica_groups={{0,1,2,3}}, to_apply=%add
  ROOT %part = f32[2,256]{1,0:T(2,128)} dynamic-slice(%sum, %param_0.2), dynamic_slice_sizes={2,256}
}

%condition (state: (s32[], f32[8,256])) -> pred[] {
  %most = s32[]{:T(128)} constant(8)
  %state = (s32[]{:T(128)}, f32[8,256]{1,0:T(8,128)}) parameter(0)
  %counter = s32[]{:T(128)} get-tuple-element(%state), index=0
  ROOT %less = pred[]{:T(512)} compare(%counter, %most), direction=LT
}

%body (state.1: (s32[], f32[8,256])) -> (s32[], f32[8,256]) {
  %two = s32[]{:T(128)} constant(2)
  %state.1 = (s32[]{:T(128)}, f32[8,256]{1,0:T(8,128)}) parameter(0)
  %counter.1 = s32[]{:T(128)} get-tuple-element(%state.1), index=0
  %x = f32[8,256]{1,0:T(8,128)} get-tuple-element(%state.1), index=1
  %next = s32[]{:T(128)} add(%counter.1, %two)
  %sent = (f32[8,256]{1,0}, f32[8,256]{1,0}, u32[]{:S(2)}, u32[]{:S(2)}) collective-permute-start(%x), \
channel_id=1, source_target_pairs={{0,1},{1,0},{2,3},{3,2}}
  %got = f32[8,256]{1,0:T(8,128)} collective-permute-done(%sent)
  ROOT %out = (s32[]{:T(128)}, f32[8,256]{1,0:T(8,128)}) tuple(%next, %got)
}

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = f32[] add(%a, %b)
}

ENTRY %main (x.1: f32[8,256]) -> f32[2,256] {
  %x.1 = f32[8,256]{1,0:T(8,128)} parameter(0)
  %zero = s32[]{:T(128)} constant(0)
  %space = f32[8,256]{1,0:T(8,128)} custom-call(), custom_call_target="AllocateBuffer"
  %start = (s32[]{:T(128)}, f32[8,256]{1,0:T(8,128)}) tuple(%zero, %x.1)
  %loop = (s32[]{:T(128)}, f32[8,256]{1,0:T(8,128)}) while(%start), condition=%condition, body=%body
  %y = f32[8,256]{1,0:T(8,128)} get-tuple-element(%loop), index=1
  %begun = ((), (), (s32[64]{0:T(1024)})) async-start(), calls=%wrapped
  %going = ((f32[8,256]{1,0}), f32[8,256]{1,0}, (s32[64]{0:T(1024)})) async-update(%begun, %y)
  %over = f32[8,256]{1,0:T(8,128)} async-done(%going)
  %all = (f32[8,256]{1,0}, f32[16,256]{1,0:T(8,128)}) all-gather-start(%y), \
replica_groups=GROUPS, dimensions={0}
  %whole = f32[16,256]{1,0:T(8,128)} all-gather-done(%all)
  ROOT %least = f32[2,256]{1,0:T(2,128)} fusion(%y), kind=kCustom, calls=%all-reduce-scatter
}
"""


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("{{0,2},{1,3}}", ((0, 2), (1, 3))),
        ("[2,2]<=[4]", ((0, 1), (2, 3))),
        ("[2,2]<=[2,2]T(1,0)", ((0, 2), (1, 3))),
        ("mesh['a'=2,'b'=2] {'b'}", ((0, 1), (2, 3))),
        ("mesh['a'=2,'b'=2] {'a'}", ((0, 2), (1, 3))),
    ],
)
def test_the_collectives_of_a_call(text, groups):
    pairs = ((0, 1), (1, 0), (2, 3), (3, 2))
    assert collectives(COUNTED.replace("GROUPS", text), devices=4) == [
        Collective("collective-permute", 8 * KIB, ((0, 1), (2, 3)), pairs, times=4),
        Collective("all-to-all", 8 * KIB, ((0, 1, 2, 3),), (), times=1),
        Collective("all-gather", 16 * KIB, groups, (), times=1),
        # Of the sum each device keeps a part.
        Collective("reduce-scatter", 8 * KIB, ((0, 1, 2, 3),), (), times=1),
    ]


def test_devices_that_are_stated_in_an_unknown_way_are_an_error():
    with pytest.raises(ValueError, match="replica_groups"):
        collectives(COUNTED.replace("GROUPS", "mesh['a'=4] {'a':(1)2}"), devices=4)


def test_the_bytes_of_a_call():
    """Four permutations and an exchange of 8 KiB, a gathering of 8 to 16, and 8 of which 2 are kept."""
    arrays = 4 * (8 + 8) + 8 + 8 + 8 + 16 + 8 + 2
    counter = 3 * 4
    assert call_bytes(COUNTED.replace("GROUPS", "[1,4]<=[4]")) == arrays * KIB + 4 * counter


def test_a_loop_over_layers_counts_as_often_as_it_runs():
    def run(weights, x):
        return jax.lax.scan(lambda x, weight: (jnp.tanh(x @ weight), None), x, weights)[0]

    def text(layers):
        weights, x = np.zeros((layers, 512, 512), np.float32), np.zeros((64, 512), np.float32)
        return jax.jit(run).lower(weights, x).compile().as_text()

    few, many = text(3), text(9)
    assert iteration_bytes(few) == iteration_bytes(many) > 512 * 512 * 4
    assert call_bytes(many) - call_bytes(few) == 6 * iteration_bytes(few)
