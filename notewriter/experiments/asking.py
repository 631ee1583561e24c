"""The variables of a pipeline asked for in a terminal, and the file that has the answers."""

import shlex
from collections.abc import Callable
from pathlib import Path

import yaml

from notewriter.experiments.files import MissingVariable, filled
from notewriter.experiments.forecast import forecast
from notewriter.experiments.run import Pipeline, PipelineFile, gpu_gib, read_pipeline, read_pipeline_file
from notewriter.ground import jsonl

NAME = "pipeline.yaml"
"""The file in the folder of a pipeline that has the answers."""

Ask = Callable[[str], str]
"""Shows a text and returns the line that is typed; raises EOFError where there is none."""


def lacks_answers(file: PipelineFile) -> bool:
    """Whether a variable that the file asks for has no value."""
    return any(file.variables.get(name, "") is None for name in file.asks)


def asked(path: Path, output_dir: str | None, ask: Ask, say: Callable[[str], object]) -> Pipeline | None:
    """Ask for the `asks` of a pipeline file, write the answers as a file of their own, and print its estimate.

    Args:
        path: the pipeline file.
        output_dir: the folder in place of the file's.
        ask: asks for a line; an empty one takes what stands in brackets.
        say: shows a line of the pipeline's estimate.

    Returns:
        The pipeline of the written file, which includes the one that is asked for; None where it is not to be run.

    Raises:
        UserError: the file is no pipeline, or an answer makes none.
    """
    file = read_pipeline_file(path, output_dir)
    variables = {"gpu_gib": gpu_gib(), **file.variables, "output_dir": file.output_dir}
    answers: dict[str, str] = {}
    for name, text in file.asks.items():
        if not (question := filled(text, variables, f"{path}: asks: {name}")):
            continue
        try:
            usual = filled(f"{{{{ {name} }}}}", variables, f"{path}: {name}")
        except MissingVariable:
            usual = None
        answer = ""
        while not answer:
            answer = ask(f"{question}{f' [{usual}]' if usual else ''}: ").strip() or usual or ""
            if usual == "":
                break
        if answer != (usual or ""):
            # One word of a command, and no template.
            answers[name] = f"{{% raw %}}{shlex.quote(answer)}{{% endraw %}}" if "{" in answer else shlex.quote(answer)
            variables[name] = answers[name]
    folder = str(filled(file.output_dir, variables, f"{path}: output_dir"))
    written = Path(folder) / NAME
    # A recipe has its name alone.
    content = {"include": str(path.resolve() if path.is_file() else path), "variables": answers}
    content |= {"output_dir": folder} if shlex.quote(folder) == folder else {}
    jsonl.write_text(written, [yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=120)])
    pipeline = read_pipeline(written, folder)
    say(f"\n{written} has your answers; what they take here:\n")
    for line in forecast(pipeline):
        say("".join(each[2:] for each in line.splitlines(keepends=True) if each.startswith("# ")))
    return pipeline if ask("run it now? [yes]: ").strip().lower() in ("", "y", "yes") else None
