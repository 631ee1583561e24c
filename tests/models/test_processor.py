"""The number format for a CPU's features; the feature lists are those of real CPUs."""

import pytest

from notewriter.models import processor
from notewriter.models.processor import has_bfloat16, number_format

AVX2 = (
    "fpu vme de pse tsc msr pae mce cx8 apic sep mtrr pge mca cmov pat pse36 clflush mmx fxsr sse sse2 ht syscall nx "
    "mmxext fxsr_opt pdpe1gb rdtscp lm constant_tsc rep_good nopl xtopology nonstop_tsc cpuid extd_apicid pni "
    "pclmulqdq ssse3 fma cx16 pcid sse4_1 sse4_2 x2apic movbe popcnt aes xsave avx f16c rdrand hypervisor lahf_lm "
    "cmp_legacy abm sse4a misalignsse 3dnowprefetch osvw topoext fsgsbase bmi1 avx2 smep bmi2 erms invpcid rdseed adx "
    "smap clflushopt clwb sha_ni xsaveopt xsavec xgetbv1 xsaves clzero arat umip vaes vpclmulqdq rdpid fsrm"
)
AVX512 = f"{AVX2} avx512f avx512dq avx512cd avx512bw avx512vl avx512_vnni"
AVX512_BF16 = f"{AVX512} avx512vbmi avx512_vbmi2 avx512_bitalg avx512_vpopcntdq avx512_bf16"
AMX = f"{AVX512_BF16} avx512_fp16 amx_bf16 amx_tile amx_int8"
GRAVITON2 = "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp ssbs"
GRAVITON3 = (
    "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm jscvt fcma lrcpc dcpop sha3 sm3 "
    "sm4 asimddp sha512 sve asimdfhm dit uscat ilrcpc flagm ssbs paca pacg dcpodp svei8mm svebf16 i8mm bf16 dgh rng"
)


@pytest.fixture(autouse=True)
def without_limits(monkeypatch):
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)


def cpuinfo(label, *cores):
    return "".join(f"processor\t: {n}\n{label}\t\t: {core}\nbogomips\t: 4890.84\n\n" for n, core in enumerate(cores))


@pytest.mark.parametrize(
    ("label", "features", "expected"),
    [
        pytest.param("flags", AVX2, "float32", id="AVX2 alone"),
        pytest.param("flags", AVX512, "float32", id="AVX-512 without bfloat16"),
        pytest.param("flags", AVX512_BF16, "float32", id="AVX-512 with bfloat16 and no AMX"),
        pytest.param("flags", AMX, "bfloat16", id="AMX"),
        pytest.param("Features", GRAVITON2, "float32", id="Arm without bf16"),
        pytest.param("Features", GRAVITON3, "bfloat16", id="Arm with bf16"),
        pytest.param("model name", "a processor that says nothing", "float32", id="nothing known"),
    ],
)
def test_bfloat16_is_for_processors_with_matrix_units_for_it(label, features, expected):
    assert has_bfloat16(cpuinfo(label, features, features)) == (expected == "bfloat16")


@pytest.mark.parametrize(("told", "expected"), [("1\n", "bfloat16"), ("0\n", "float32"), ("", "float32")])
def test_macos_is_asked_through_sysctl(monkeypatch, told, expected):
    asked = []

    def run(command, **options):
        asked.append(command)
        return processor.subprocess.CompletedProcess(command, 0 if told else 1, stdout=told)

    monkeypatch.setattr(processor.sys, "platform", "darwin")
    monkeypatch.setattr(processor.subprocess, "run", run)
    assert number_format() == expected
    assert asked == [["sysctl", "-n", "hw.optional.arm.FEAT_BF16"]]


def test_this_machine_has_an_answer():
    assert number_format() in {"bfloat16", "float32"}
