"""What a judge reads of a trace: thoughts, actions and observations, for every method alike."""

from trace_steps import generation, trace

from notewriter.artifacts.traces import Retrieval
from notewriter.evaluation.evidence import reference_of
from notewriter.evaluation.steps import OBSERVATION_WORDS, chain_of, outline_of


def test_a_judged_trace_is_known_by_its_searches_with_their_finds_and_what_was_written():
    """Folders judged by earlier versions are compared with this."""
    found = [{"id": "1", "title": "Osk"}, {"id": "2", "title": "Tolen"}]
    steps = [
        Retrieval("bridge?", 5, found, 0.1),
        generation("deepnote/refine_query", " Who? "),
        Retrieval("x", 5, [], 0),
    ]
    told = ["search: bridge?\nfound: Osk; Tolen", "refine query: Who?", "search: x\nfound: nothing"]
    assert outline_of(trace(*steps)) == told


OSK = {"id": "1", "title": "Osk"}
TOLEN = {"id": "2", "title": "Tolen"}


def test_a_chain_in_a_chat_is_its_thoughts_actions_and_observations():
    """ReAct, ReNAct and ReaRAG: the notes and answers behind an observation are not told twice."""
    thought, seen = "Thought: I look.\nAction: search[Osk]", "Observation: (Result 1) Osk - It has a bridge."
    steps = [
        generation("renact/step", thought, "Find."),
        Retrieval("Osk", 5, [OSK], 0.1),
        generation("renact/note", "YES#It has a bridge.", "Read a document."),
        generation("renact/step", "Thought: I know.\nAction: finish[1871]", "Find.", thought, seen),
    ]
    assert chain_of(trace(*steps)) == [thought, seen, "Thought: I know.\nAction: finish[1871]"]
    released = generation("rearag/released", "Action 2: finish", "Who?", "Action 1: search", "It is in Osk.")
    released.messages.insert(0, {"role": "system", "content": "Reason."})
    released.messages[-1]["role"] = "observation"
    found = trace(Retrieval("Osk", 5, [OSK], 0.1), released)
    assert chain_of(found) == ["Action 1: search", "Observation: It is in Osk.", "Action 2: finish"]
    assert reference_of(found, "Who?") == "It is in Osk."
    # Where the steps ran out, the last search is in no chat.
    unfinished = [*steps[:3], steps[3], Retrieval("Tolen", 5, [], 0.1), generation("renact/answer", "1871", "Answer.")]
    assert chain_of(trace(*unfinished))[3:] == [
        "Action: search: Tolen",
        "Observation: nothing was found",
        "Answer: 1871",
    ]


PROMPT_OF_A_STEP = "Passages:\n[1] Osk: It has a bridge.\n[2] Bore: A river.\n[3] Tolen: A town.\n\nQuestion: Who?"


def test_a_chain_of_prompts_has_the_passages_that_a_search_added_as_its_observation():
    """IRCoT without notes; passages of an earlier search are in the prompt too."""
    steps = [Retrieval("Who?", 5, [OSK, TOLEN], 0.1), generation("ircot/step", "Osk has one.", PROMPT_OF_A_STEP)]
    assert chain_of(trace(*steps)) == [
        "Action: search: Who?",
        "Observation: Osk: It has a bridge.\nTolen: A town.",
        "Thought (step): Osk has one.",
    ]


def test_notes_are_what_a_method_observes():
    """IRCoT with notes, DeepNote, ReSP, Search-o1: the reasoning goes on with the note, not with the documents."""
    documents = [
        generation("ircot/note", "YES#It has a bridge.", "Read a document."),
        generation("ircot/note", "NO#Nothing.", "Read a document."),
    ]
    step = generation("ircot/step", "Osk has one.", "Passages:\n[1] Osk: It has a bridge.\n\nQuestion: Who?")
    told = chain_of(trace(Retrieval("Who?", 5, [OSK, TOLEN], 0.1), *documents, step))
    assert told[1:] == ["Observation: It has a bridge.", "Thought (step): Osk has one."]
    nothing = chain_of(trace(Retrieval("Who?", 5, [TOLEN], 0.1), documents[1], step))
    assert nothing[1] == "Observation: nothing relevant"
    notes = [
        Retrieval("Who?", 5, [OSK], 0.1),
        generation("deepnote/init_note", "A note.", PROMPT_OF_A_STEP),
        generation("deepnote/refine_query", "Which one?"),
        generation("deepnote/answer", "Osk"),
    ]
    assert chain_of(trace(*notes))[1:] == [
        "Observation: A note.",
        "Thought (refine query): Which one?",
        "Answer: Osk",
    ]


def test_an_extractive_note_is_observed_as_the_sentences_that_it_names():
    prompt = "Who?\n\nOsk: It has a bridge. [A] The bridge is old. [B]\n\nWho?"
    told = chain_of(trace(Retrieval("Who?", 5, [OSK], 0.1), generation("deepnote/init_note", "[B]", prompt)))
    assert told[1:] == ["Observation: The bridge is old."]


def test_a_chain_has_no_thinking_in_it_and_long_observations_say_what_is_cut():
    page = " ".join(["word"] * (OBSERVATION_WORDS + 7))
    steps = [
        Retrieval("Who?", 5, [OSK], 0.1),
        generation("ircot/step", "<think>Hm.</think>Osk.", f"Passages:\n[1] Osk: {page}\n\nQuestion: Who?"),
    ]
    _, observation, thought = chain_of(trace(*steps))
    assert observation.endswith("word [... 8 more words]") and thought == "Thought (step): Osk."
