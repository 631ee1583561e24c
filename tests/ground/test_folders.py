"""Folders that appear under their final name only when complete."""

from pathlib import Path

import pytest

from notewriter.ground.folders import new_folder


@pytest.fixture
def link(tmp_path: Path) -> Path:
    (tmp_path / "links").mkdir()
    link = tmp_path / "links" / "index"
    link.symlink_to(tmp_path / "disk" / "index")
    return link


def test_through_a_link_its_target_is_replaced_and_the_link_stays(tmp_path: Path, link: Path) -> None:
    for content in ("first", "second", "third"):
        with new_folder(link) as folder:
            (folder / "file").write_text(content)
        assert link.is_symlink()
        assert (tmp_path / "disk" / "index" / "file").read_text() == content
        assert list((tmp_path / "links").iterdir()) == [link]
        assert list((tmp_path / "disk").iterdir()) == [tmp_path / "disk" / "index"]
