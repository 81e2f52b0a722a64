"""Make the sample models, or score those that are here.

From the repository's root:

    python -m sample_models.build                # all five
    python -m sample_models.build --only llama-1m-fp32 --minutes-per-model 1 --out /tmp/models
    python -m sample_models.build --check        # no training: ask the models through mlx-lm

Needs what ``requirements-build.txt`` lists; ``--check`` does without torch.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import shutil
import tempfile
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import mlx.core as mx
import numpy as np
from mlx_lm import convert, load
from transformers import PreTrainedTokenizerFast

from . import corpus, encoding
from .recipes import GROUP_SIZE, RECIPES, Recipe
from .scoring import CATEGORIES, score

HERE = Path(__file__).parent
SEED = 20261129
DOCUMENTS = 40_000
TOKENIZER_DOCUMENTS = 8_000
LARGEST_DIFFERENCE = 1e-2
"""Between the logits of transformers and of mlx-lm, both in fp32."""
MODEL_FILES = (
    "config.json", "generation_config.json", "model.safetensors", "tokenizer.json",
    "tokenizer_config.json", "chat_template.jinja",
)  # fmt: skip
LEFTOVER_KEYS = (
    "_name_or_path", "transformers_version", "use_cache", "output_router_logits",
    "router_aux_loss_coef", "router_jitter_noise", "_sliding_window_pattern", "is_local",
    "local_files_only", "_from_model_config", "output_attentions", "output_hidden_states",
)  # fmt: skip


@dataclass(frozen=True)
class Data:
    """The shared tokenizer, and the corpus as windows of tokens and labels."""

    tokenizer: PreTrainedTokenizerFast
    tokens: np.ndarray
    labels: np.ndarray


def make_data(documents: int) -> Data:
    """Write the corpus, learn the tokenizer from its beginning, and encode it."""
    tokenizer = encoding.train_tokenizer(corpus.documents(SEED, TOKENIZER_DOCUMENTS))
    encoded = encoding.encode(tokenizer, corpus.documents(SEED, documents))
    return Data(tokenizer, *encoding.pack(tokenizer.pad_token_id, encoded))


def train_and_save(recipe: Recipe, data: Data, minutes: float, folder: Path) -> str:
    """Train one model and save it as transformers does, in a form that mlx-lm reads.

    What comes back is a sentence about the training. mlx-lm and transformers must agree about the
    saved model, because a key that one of them doesn't find in the configuration is not an error
    to it but a default.
    """
    import torch  # Not needed by --check, and not installed with the project.
    from transformers import AutoModelForCausalLM

    from .training import train

    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    config = recipe.config(data.tokenizer)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    outcome = train(model, data.tokens, data.labels, minutes, SEED)
    model.save_pretrained(folder)
    data.tokenizer.save_pretrained(folder)
    config_file = folder / "config.json"
    written = json.loads(config_file.read_text())
    config_file.write_text(json.dumps(written | recipe.written_back | {"dtype": recipe.dtype}))

    sample = data.tokens[:1, :256].astype(np.int64)
    with torch.no_grad():
        expected = model(torch.from_numpy(sample)).logits.numpy()
    mlx_model = load(str(folder))[0]
    difference = float(np.abs(np.array(mlx_model(mx.array(sample))) - expected).max())
    if difference > LARGEST_DIFFERENCE:
        raise RuntimeError(f"mlx-lm reads another model than was trained: off by {difference}")
    return f"{model.num_parameters():,} parameters, {outcome}, mlx-lm within {difference:.1e}"


def convert_to_mlx(recipe: Recipe, source: Path, folder: Path) -> None:
    """Convert to an mlx-lm folder that holds only what a loader reads."""
    convert(
        str(source),
        str(folder),
        quantize=recipe.bits is not None,
        q_bits=recipe.bits,
        q_group_size=GROUP_SIZE,
        dtype=recipe.dtype,
    )
    for path in folder.iterdir():
        if path.name not in MODEL_FILES:
            path.unlink()
            continue
        if path.suffix == ".json":
            content = json.loads(path.read_text())
            for key in LEFTOVER_KEYS:
                content.pop(key, None)
            indent = None if path.name == "tokenizer.json" else 2
            path.write_text(json.dumps(content, indent=indent, ensure_ascii=False) + "\n")
        elif path.suffix == ".jinja":
            path.write_text(path.read_text() + "\n")  # Jinja drops a template's last newline.
        path.chmod(0o644)


def replace_folder(new: Path, old: Path) -> None:
    """Put ``new`` where ``old`` is; nobody who opens ``old`` meets a half-written model."""
    staged = old.with_name(f".{old.name}.new")
    retired = old.with_name(f".{old.name}.old")
    shutil.copytree(new, staged)
    if old.exists():
        old.replace(retired)
    staged.replace(old)
    shutil.rmtree(retired, ignore_errors=True)


def build_one(name: str, data: Data, minutes: float, out: Path) -> str:
    """Make one model in ``out``, and tell how its training went."""
    with tempfile.TemporaryDirectory() as scratch:
        trained, converted = Path(scratch, "trained"), Path(scratch, "converted")
        outcome = train_and_save(RECIPES[name], data, minutes, trained)
        convert_to_mlx(RECIPES[name], trained, converted)
        replace_folder(converted, out / name)
    return f"{name}: {outcome}"


def build(names: list[str], minutes: float, documents: int, jobs: int, out: Path) -> None:
    """Make the named models in ``out``, ``jobs`` of them at a time, each on one core.

    One thread per model wastes less than two threads on one: at this size threads wait for each
    other more than they work, and when another program wants a core they do little else.
    """
    data = make_data(documents)
    print(f"{len(data.tokens)} windows of {data.tokens.shape[1]} tokens", flush=True)
    out.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        running = [
            pool.submit(build_one, name, data, minutes * RECIPES[name].time_share, out)
            for name in names
        ]
        for future in as_completed(running):
            print(future.result(), flush=True)


def check(names: list[str], folder: Path) -> None:
    """Print the scores as a Markdown table, and the end of a miss where there is one."""
    print("| model | " + " | ".join(CATEGORIES) + " |")
    print("| --- |" + " --- |" * len(CATEGORIES), flush=True)
    misses = []
    for name in names:
        scores = score(folder / name)
        print(f"| {name} | " + " | ".join(map(str, scores.values())) + " |", flush=True)
        misses += [f"{name}, {kind}: {s.miss[-300:]!r}" for kind, s in scores.items() if s.miss]
    print(*misses, sep="\n")


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--only", metavar="NAME", action="append", choices=list(RECIPES), help="repeatable"
    )
    parser.add_argument(
        "--minutes-per-model", type=float, default=6.5, metavar="M", help="of a core; default 6.5"
    )
    parser.add_argument("--jobs", type=int, default=2, help="models made at a time; default 2")
    parser.add_argument("--documents", type=int, default=DOCUMENTS, help="size of the corpus")
    parser.add_argument("--out", type=Path, default=HERE, help="where the model folders are")
    parser.add_argument("--check", action="store_true", help="score what is there, build nothing")
    return parser.parse_args()


def main() -> None:
    """Build and score, or only score."""
    arguments = parse_arguments()
    names = arguments.only or list(RECIPES)
    if not arguments.check:
        minutes, out = arguments.minutes_per_model, arguments.out
        build(names, minutes, arguments.documents, arguments.jobs, out)
    check(names, arguments.out)


if __name__ == "__main__":
    main()
