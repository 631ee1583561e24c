from notewriter.pages.differences import marked_differences, merged_differences


def test_what_the_other_side_has_not_is_marked():
    one, other = marked_differences("Arlen Voss was born in Tirsk. He lives.", "He was born in Velmor. He lives.")
    assert [word.strip() for word, differs in one if differs] == ["Arlen", "Voss", "Tirsk."]
    assert [word.strip() for word, differs in other if differs] == ["He", "Velmor."]
    assert "".join(word for word, _ in one) == "Arlen Voss was born in Tirsk. He lives."


def test_what_was_added_and_dropped_stands_in_its_place():
    merged = merged_differences("Voss was born in Velmor.", "Arlen Voss was born\nin Tirsk.")
    assert merged == [
        ("Arlen ", "added"),
        ("Voss ", "kept"),
        ("was ", "kept"),
        ("born\n", "kept"),
        ("in ", "kept"),
        ("Velmor. ", "dropped"),
        ("Tirsk.", "added"),
    ]


def test_a_text_that_stays_is_kept_and_one_that_comes_is_added():
    assert merged_differences("the same", "the same") == [("the ", "kept"), ("same", "kept")]
    assert merged_differences("", "new text") == [("new ", "added"), ("text", "added")]
    assert merged_differences("old", "") == [("old ", "dropped")]
