"""Has a GPU double 32 numbers, by nothing but the driver's own library: shows that a program in a sandbox can use a card that it was given, and no other can.

    cofferdam run --gpu 0 --workspace examples -- python3 gpu.py      # the GPU doubled 32 numbers
    cofferdam run --workspace examples -- python3 gpu.py              # cuInit: there is no device

Needs an NVIDIA card and its driver, which no machine of the tests has.
"""

import ctypes
import sys

NUMBERS = 32
NO_DEVICE = 100

TWICE = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry twice(.param .u64 numbers) {
    .reg .b32 %r<4>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [numbers];
    cvta.to.global.u64 %rd2, %rd1;
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd2, %rd2, %rd3;
    ld.global.u32 %r2, [%rd2];
    shl.b32 %r3, %r2, 1;
    st.global.u32 [%rd2], %r3;
    ret;
}
\0"""


class Driver:
    def __init__(self):
        try:
            self.library = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            sys.exit(f"the driver's library is not here: {error}")

    def __getattr__(self, name):
        call = getattr(self.library, name)

        def checked(*arguments):
            code = call(*arguments)
            if code:
                why = "there is no device" if code == NO_DEVICE else f"error {code}"
                sys.exit(f"{name}: {why}")

        return checked


def main():
    cuda = Driver()
    device, context, module, function = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    cuda.cuInit(0)
    cuda.cuDeviceGet(ctypes.byref(device), 0)
    cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device)
    cuda.cuModuleLoadData(ctypes.byref(module), TWICE)
    cuda.cuModuleGetFunction(ctypes.byref(function), module, b"twice")
    numbers = (ctypes.c_uint32 * NUMBERS)(*range(NUMBERS))
    there = ctypes.c_uint64()
    cuda.cuMemAlloc_v2(ctypes.byref(there), ctypes.sizeof(numbers))
    cuda.cuMemcpyHtoD_v2(there, numbers, ctypes.sizeof(numbers))
    arguments = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(there), ctypes.c_void_p))
    cuda.cuLaunchKernel(function, 1, 1, 1, NUMBERS, 1, 1, 0, None, arguments, None)
    cuda.cuCtxSynchronize()
    cuda.cuMemcpyDtoH_v2(numbers, there, ctypes.sizeof(numbers))
    if list(numbers) != [2 * number for number in range(NUMBERS)]:
        sys.exit(f"wrong: {list(numbers)}")
    print(f"the GPU doubled {NUMBERS} numbers")


if __name__ == "__main__":
    main()
