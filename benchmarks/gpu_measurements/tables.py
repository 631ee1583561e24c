"""Results as Markdown tables."""

from .results import Record


def tables(headers: list[Record], records: dict[str, Record]) -> str:
    """A results file as Markdown."""
    by_function: dict[str, list[Record]] = {}
    for record in records.values():
        if record["outcome"] == "measured":
            by_function.setdefault(record["name"].split("/")[0], []).append(record)
    ceiling = next((each["tflops"] for each in by_function.get("ceiling", []) if "bfloat16" in each["name"]), None)
    parts = [
        *(describe(header) for header in headers),
        rates(by_function),
        exactness(by_function),
        dependence(by_function),
        kernel(by_function),
        speed(records, ceiling),
        memory(by_function),
        profiles(by_function),
        real_runs(by_function),
        unfinished(records),
    ]
    return "\n".join(part for part in parts if part)


def table(title: str, columns: list[str], rows: list[list[str]]) -> str:
    """A section with a Markdown table; nothing where there are no rows."""
    if not rows:
        return ""
    lines = [f"| {' | '.join(row)} |" for row in (columns, ["---"] * len(columns), *rows)]
    return "\n".join([f"## {title}", "", *lines, ""])


def describe(header: Record) -> str:
    """The machine, the versions and the command."""
    versions = ", ".join(f"{name} {number}" for name, number in header["versions"].items())
    memory = (
        f", {header['memory_gib']} GiB, driver {header.get('driver')}, CUDA {header['cuda']}"
        if "cuda" in header
        else ""
    )
    return f"{header['device']}{memory}; {versions}.\n\n```sh\n{header['command']}\n```\n"


def rates(measured: dict[str, list[Record]]) -> str:
    """The ceilings of arithmetic and of memory."""
    rows = [[each["name"].split("/")[1], f"{each['tflops']:.3g} TFLOP/s"] for each in measured.get("ceiling", [])]
    rows += [["copy", f"{each['gb_per_second']:.3g} GB/s"] for each in measured.get("bandwidth", [])]
    return table("Measured ceilings", ["", "rate"], rows)


def exactness(measured: dict[str, list[Record]]) -> str:
    """Shared and stacked scoring against exact scores."""
    rows = []
    for each in measured.get("right", []):
        _, model, batch, variant = each["name"].split("/")
        numbers = [
            f"{each[way][error]:.1e}" for error in ("log_prob", "loss", "gradient") for way in ("stacked", "shared")
        ]
        rows.append([model, batch, variant, each["attention"], *numbers, "yes" if each["right"] else "**no**"])
    columns = ["model", "batch", "computed in", "attention", "log-prob: stacked", "shared", "loss: stacked", "shared"]
    return table("Exactness", [*columns, "gradient: stacked", "shared", "right"], rows)


def dependence(measured: dict[str, list[Record]]) -> str:
    """How much scores depend on the far half of the prompt."""
    rows = [[each["name"].split("/")[1], f"{each['log_prob']:.2f}"] for each in measured.get("dependence", [])]
    return table("Change of a log-prob when the prompt's far half is another", ["model", "nats"], rows)


def kernel(measured: dict[str, list[Record]]) -> str:
    """The attention kernel by itself against exact attention."""
    rows = [
        [*each["name"].split("/")[1:], *(f"{each[name]:.1e}" for name in ("output", "query", "key", "value"))]
        for each in measured.get("kernel", [])
    ]
    columns = ["heads of", "window", "output", "gradient: query", "key", "value"]
    return table("FlashAttention's kernel, relative error", columns, rows)


def speed(records: dict[str, Record], ceiling: float | None) -> str:
    """Seconds of a step of TRL's trainer and with shared prompts, and what follows from them."""
    rows = []
    for name, shared in records.items():
        if not (name.startswith("fast/") and name.endswith("/shared")):
            continue
        trl = records.get(name.removesuffix("shared") + "TRL", {"outcome": "not measured"})
        pair = [trl, shared]
        seconds = [f"{each['seconds']:.3f}" if "seconds" in each else each["outcome"] for each in pair]
        both = all("seconds" in each for each in pair)
        speedup = f"{trl['seconds'] / shared['seconds']:.2f}" if both else ""
        known = next((each for each in pair if "unique_tokens" in each), None)
        limit = f"{known['tokens'] / known['unique_tokens']:.2f}" if known else ""
        rate = [
            f"{each[key]:,.0f}" if key in each else ""
            for key in ("tokens_per_second", "unique_tokens_per_second")
            for each in pair
        ]
        mfu = [
            f"{each['operations'] / each['seconds'] / ceiling / 1e12:.1%}" if ceiling and "seconds" in each else ""
            for each in pair
        ]
        peak = [f"{each['peak_bytes'] / 2**30:.1f}" if each.get("peak_bytes") else "" for each in pair]
        setting = " ".join(name.split("/")[1:-1])
        attention = [each.get("attention", "") for each in pair]
        rows.append([setting, *attention, *seconds, speedup, limit, *rate, *mfu, *peak])
    columns = ["setting", "TRL's attention", "shared attention", "s a step: TRL", "shared", "speed-up", "limit"]
    for figure in ("tokens/s", "unique tokens/s", "MFU", "peak GiB"):
        columns += [f"{figure}: TRL", "shared"]
    return table("Speed and memory", columns, rows)


def memory(measured: dict[str, list[Record]]) -> str:
    """The estimate's memory beside the measured one."""
    rows = []
    for each in measured.get("fast", []):
        if each.get("peak_bytes"):
            total, peak = each["predicted"]["total"], each["peak_bytes"]
            moments = each["predicted"]["moments"]
            largest = max(moments, key=lambda moment: moments[moment])
            numbers = [f"{total / 2**30:.1f}", f"{peak / 2**30:.1f}", f"{total / peak - 1:+.0%}"]
            rows.append([" ".join(each["name"].split("/")[1:]), *numbers, largest])
    return table("Estimated memory", ["setting", "estimated GiB", "measured GiB", "error", "largest moment"], rows)


def profiles(measured: dict[str, list[Record]]) -> str:
    """Where the device's time goes."""
    found = measured.get("profile", [])
    kinds = list(found[0]["seconds"]) if found else []
    rows = [
        [
            " ".join(each["name"].split("/")[1:]),
            *(f"{each['seconds'][kind] / max(sum(each['seconds'].values()), 1e-12):.1%}" for kind in kinds),
            f"{each['busy']:.0%}",
            f"{each['launches']:,}",
        ]
        for each in found
    ]
    return table("Where the time goes", ["setting", *kinds, "device busy", "kernels in two steps"], rows)


def real_runs(measured: dict[str, list[Record]]) -> str:
    """The losses of real runs, step by step."""
    found = [each for each in measured.get("real run", []) if each.get("losses")]
    steps = max((len(each["losses"]) for each in found), default=0)
    rows = [
        [str(step + 1), *(f"{each['losses'][step]:.4f}" if step < len(each["losses"]) else "" for each in found)]
        for step in range(steps)
    ]
    return table("A real run's losses", ["step", *(each["name"].split("/")[1] for each in found)], rows)


def unfinished(records: dict[str, Record]) -> str:
    """What has no figures, and why."""
    rows = [
        [each["name"], each["outcome"], each.get("reason", "").splitlines()[0][:200].replace("|", "/")]
        for each in records.values()
        if each["outcome"] != "measured"
    ]
    return table("Without figures", ["measurement", "outcome", "reason"], rows)
