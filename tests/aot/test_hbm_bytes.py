"""Memory traffic of loops: of a program counted by hand, and of one that XLA compiles for this machine."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rmsweb_jax.aot.hbm_bytes import iteration_bytes

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
