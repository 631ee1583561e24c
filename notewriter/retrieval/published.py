"""Ready-made vectors of wiki-18 by E5, for `notewriter index --vectors NAME`.

All are of the passages of `fetch corpus wiki-18`, in that order: the paths inside both archives are FlashRAG's. The
published BM25 indexes are Lucene's, which nothing here reads: one of the same corpus is built in minutes.
"""

from pathlib import Path

from notewriter.ground.releases import File, Release

_SEARCH_R1 = "hf://datasets/PeterJinGo/wiki-18-e5-index@a4d31160a035f30764604f4827cd8f1d0315eb86"
_SEARCH_R1_HNSW = "hf://datasets/PeterJinGo/wiki-18-e5-index-HNSW64@main"

INDEXES: dict[str, Release] = {
    "wiki-18-e5-flat": Release(
        name="wiki-18-e5-flat",
        page="huggingface.co/datasets/PeterJinGo/wiki-18-e5-index",
        licence="none stated",
        files=(
            File(
                address=(f"{_SEARCH_R1}/part_aa", f"{_SEARCH_R1}/part_ab"),
                name="e5_Flat.index",
                size=64_559_075_373,
                sha256="69c98463fdb41fc08737d88513c597725f311c44f7ba4dca4b05d8c7c658d166",
            ),
        ),
        note="Search-R1's: 21,015,324 vectors of intfloat/e5-base-v2",
    ),
    "wiki-18-e5-hnsw64": Release(
        name="wiki-18-e5-hnsw64",
        page="huggingface.co/datasets/PeterJinGo/wiki-18-e5-index-HNSW64",
        licence="none stated",
        files=(
            File(
                address=(f"{_SEARCH_R1_HNSW}/part_aa", f"{_SEARCH_R1_HNSW}/part_ab"),
                name="e5_HNSW64.index",
                unverified="size and SHA-256",
            ),
        ),
        note="Search-R1's",
    ),
    "flashrag-wiki18-e5-flat": Release(
        name="flashrag-wiki18-e5-flat",
        page="modelscope.cn/datasets/hhjinjiajie/FlashRAG_Dataset",
        licence="none stated",
        files=(
            File(
                address="https://www.modelscope.cn/datasets/hhjinjiajie/FlashRAG_Dataset/resolve/master/"
                "retrieval_corpus/wiki18_100w_e5_index.zip",
                member="e5_flat_inner.index",
                unverified="size, SHA-256, and that its order is wiki-18's",
            ),
        ),
        note="FlashRAG's, on ModelScope",
    ),
}
"""By name."""


def vectors_file(name: str) -> Path:
    """The file of ready-made vectors: a path, or the fetched file of one of `INDEXES`.

    Raises:
        UserError: it was not fetched; names the command that fetches it.
    """
    if name not in INDEXES or Path(name).exists():
        return Path(name)
    release = INDEXES[name]
    return release.found(release.files, f"notewriter fetch index {name}")[0]
