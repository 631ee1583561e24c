"""Roll out methods with a teacher and label preference pairs; `notewriter pairs` is the same.

python data_construction/build_pairs.py --config configs/data/dnalign_2wiki.yaml --output_dir data/pairs
"""

import sys

from notewriter.data.build_pairs import main
from notewriter.ground.errors import run

if __name__ == "__main__":
    run(lambda: main(sys.argv[1:]))
