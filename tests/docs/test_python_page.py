"""docs/python.md: its code runs as it stands, against an endpoint that is scripted."""

import re
import subprocess
import sys
from pathlib import Path

from fake_endpoint import fake_endpoint

import notewriter

PAGE = (Path(__file__).parents[2] / "docs" / "python.md").read_text(encoding="utf-8")


def reply(request):
    """A model that answers rightly when it is cold."""
    return "Mira Lund" if request["temperature"] < 0.5 else "nobody knows"


def test_the_code_of_the_page_runs(tmp_path):
    code = "\n".join(re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
    with fake_endpoint(reply) as endpoint:
        (tmp_path / "page.py").write_text(
            code.replace("http://127.0.0.1:8000/v1", endpoint.base_url).replace('"MODEL"', f'"{endpoint.model}"')
        )
        done = subprocess.run([sys.executable, "page.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    titles, before, *summary, pairs, scores = done.stdout.splitlines()
    assert titles.startswith("['Osk'") and float(before) == 0.5
    assert "1 training" in summary[0]
    assert int(pairs.split()[0]) == 1 and "Mira Lund" in pairs
    assert "'f1': 0.6666666666666666" in scores


def test_the_page_names_every_name_of_the_package():
    names = set(re.findall(r"`(\w+)`", PAGE.partition("The functions take")[0]))
    assert names == set(notewriter.__all__)
    assert all(getattr(notewriter, name) for name in names)


def test_importing_the_package_imports_nothing_heavy():
    script = "import sys, notewriter; print({'torch', 'pyarrow', 'transformers', 'jinja2'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
