#!/usr/bin/env bash
# A required key without a schema of its own, in four engines that hold a model to a JSON schema. JSON Schema's own
# reading: the key has to be there, with any value. Guess before running: all four refuse an object without it, and
# accept one with it, for `{"type": "object", "required": ["note"]}` and beside properties with other keys allowed. (That
# xgrammar and outlines_core leave the key out where the schema says nothing of other keys had been seen before.)
#
# xgrammar 0.2.8, outlines_core 0.2.14, llguidance 1.7.6, lm-format-enforcer 0.11.3, jsonschema 4.26.0 as the judge.
# Output seen:
#   {"type": "object", "required": ["note"]}
#     jsonschema          {} False   {"note": "x"} True
#     xgrammar            {} True    {"note": "x"} False
#     outlines_core       {} True    {"note": "x"} True
#     llguidance          {} False   {"note": "x"} True
#     lm-format-enforcer  {} False   {"note": "x"} True
#   {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a", "note"], "additionalProperties": true}
#     jsonschema          {"a": 1} False   {"a": 1, "note": "x"} True
#     xgrammar            {"a": 1} True    {"a": 1, "note": "x"} True
#     outlines_core       {"a": 1} True    {"a": 1, "note": "x"} False
#     llguidance          {"a": 1} False   {"a": 1, "note": "x"} True
#     lm-format-enforcer  {"a": 1} False   {"a": 1, "note": "x"} False
#
# So with the first schema xgrammar, which vLLM 0.32.0 asks first and whose list of unsupported schemas has neither,
# lets a model write the one object that is invalid, and not the valid one. `{"type": "object"}` alone lets it write any
# keys. With the second lm-format-enforcer accepts no object at all. Nobody warns. Only llguidance is right in all. It
# bites whoever names keys in `required` and leaves their form to the prompt. Exits non-zero if the behaviour changes.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet torch==2.13.0 xgrammar==0.2.8 outlines_core==0.2.14 llguidance==1.7.6 \
    lm-format-enforcer==0.11.3 jsonschema==4.26.0
cd "$work"
"$work/venv/bin/python" - 2>/dev/null <<'PYTHON'
import json
import re
import sys

import jsonschema
import llguidance
import xgrammar
from lmformatenforcer import JsonSchemaParser
from outlines_core.json_schema import build_regex_from_schema
from xgrammar.testing import _is_grammar_accept_string


def by_jsonschema(schema, text):
    return jsonschema.Draft202012Validator(schema).is_valid(json.loads(text))


def by_xgrammar(schema, text):
    return _is_grammar_accept_string(xgrammar.Grammar.from_json_schema(json.dumps(schema)), text)


def by_outlines(schema, text):
    return bool(re.fullmatch(build_regex_from_schema(json.dumps(schema)), text))


def by_llguidance(schema, text):
    tokenizer = llguidance.LLTokenizer("byte")
    matcher = llguidance.LLMatcher(tokenizer, llguidance.grammar_from("json_schema", json.dumps(schema)))
    tokens = tokenizer.tokenize_str(text)
    if matcher.validate_tokens(tokens) < len(tokens):
        return False
    return matcher.consume_tokens(tokens) and matcher.is_accepting()


def by_enforcer(schema, text):
    parser = JsonSchemaParser(schema)
    for character in text:
        if character not in parser.get_allowed_characters():
            return False
        parser = parser.add_character(character)
    return parser.can_end()


ALONE = {"type": "object", "required": ["note"]}
BESIDE = {
    "type": "object",
    "properties": {"a": {"type": "integer"}},
    "required": ["a", "note"],
    "additionalProperties": True,
}
ENGINES = {
    "jsonschema": by_jsonschema,
    "xgrammar": by_xgrammar,
    "outlines_core": by_outlines,
    "llguidance": by_llguidance,
    "lm-format-enforcer": by_enforcer,
}
seen = []
for schema, texts in ((ALONE, ("{}", '{"note": "x"}')), (BESIDE, ('{"a": 1}', '{"a": 1, "note": "x"}'))):
    print(json.dumps(schema))
    for name, accepts in ENGINES.items():
        found = [accepts(schema, text) for text in texts]
        seen += found
        print(f"  {name:19}", "   ".join(f"{text} {is_valid!s:5}" for text, is_valid in zip(texts, found)).rstrip())
wrong_alone = [False, True, True, False, True, True, False, True, False, True]
wrong_beside = [False, True, True, True, True, False, False, True, False, False]
sys.exit(seen != wrong_alone + wrong_beside)
PYTHON
