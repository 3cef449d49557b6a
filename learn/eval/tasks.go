package eval

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

var (
	both = []string{accNorm, accuracy}
	acc  = []string{accuracy}

	choiceColumns = []string{"choices.text", "choices.label", "answerKey"}
)

// tasks are all tasks, sorted by name.
var tasks = []Task{
	{
		Name: "arc_challenge", Repo: "allenai/ai2_arc", Config: "ARC-Challenge", Split: "test", Examples: "train",
		columns: append([]string{"question"}, choiceColumns...), read: readARC, metrics: both,
	},
	{
		Name: "arc_easy", Repo: "allenai/ai2_arc", Config: "ARC-Easy", Split: "test", Examples: "train",
		columns: append([]string{"question"}, choiceColumns...), read: readARC, metrics: both,
	},
	{
		Name: "boolq", Repo: "aps/super_glue", Config: "boolq", Split: "validation", Examples: "train", apart: true,
		columns: []string{"passage", "question", "label"}, read: readBoolQ, metrics: acc,
	},
	{
		Name: "hellaswag", Repo: "Rowan/hellaswag", Split: "validation", Examples: "train", apart: true,
		columns: []string{"activity_label", "ctx_a", "ctx_b", "endings", "label"}, read: readHellaSwag, metrics: both,
	},
	{
		Name: "mmlu", Repo: "cais/mmlu", Config: "all", Split: "test", Examples: "dev", firstExamples: true,
		columns: []string{"question", "subject", "choices", "answer"}, read: readMMLU, metrics: acc,
	},
	{
		Name: "mmlu_pro", Repo: "TIGER-Lab/MMLU-Pro", Split: "test", Examples: "validation", firstExamples: true, Fewshot: 5,
		columns: []string{"question", "options", "answer", "cot_content", "category"}, read: readMMLUPro, metrics: []string{exactMatch},
	},
	{
		Name: "openbookqa", Repo: "allenai/openbookqa", Config: "main", Split: "test", Examples: "train",
		columns: append([]string{"question_stem"}, choiceColumns...), read: readOpenBookQA, metrics: both,
	},
	{
		Name: "piqa", Repo: "baber/piqa", Split: "validation", Examples: "train", apart: true,
		columns: []string{"goal", "sol1", "sol2", "label"}, read: readPIQA, metrics: both,
	},
}

func readARC(r record) (document, error) {
	d, err := readLabelled(r, strings.Clone)
	d.prompt = "Question: " + r.text("question") + "\nAnswer:"
	return d, err
}

func readOpenBookQA(r record) (document, error) {
	d, err := readLabelled(r, func(key string) string { return strings.TrimLeftFunc(key, isSpace) })
	d.prompt = r.text("question_stem")
	return d, err
}

// readLabelled reads choices with a label each. The answer is one of the labels.
func readLabelled(r record, key func(string) string) (document, error) {
	d := document{choices: r.texts("choices.text")}
	answer := key(r.text("answerKey"))
	if d.answer = slices.Index(r.texts("choices.label"), answer); d.answer < 0 {
		r.fail("answerKey", "%q is not one of the labels %q", answer, r.texts("choices.label"))
	}
	return d, r.err()
}

func readBoolQ(r record) (document, error) {
	return document{
		prompt:  r.text("passage") + "\nQuestion: " + r.text("question") + "?\nAnswer:",
		choices: []string{"no", "yes"},
		answer:  r.integer("label"),
	}, r.err()
}

func readHellaSwag(r record) (document, error) {
	context := r.text("ctx_a") + " " + capitalized(r.text("ctx_b"))
	d := document{prompt: tidied(r.text("activity_label") + ": " + context), answer: r.integer("label")}
	for _, ending := range r.texts("endings") {
		d.choices = append(d.choices, tidied(ending))
	}
	return d, r.err()
}

var brackets = regexp.MustCompile(`\[[^\]\n]*\]`)

// tidied removes remains of web pages from a text of HellaSwag.
func tidied(text string) string {
	text = strings.TrimFunc(text, isSpace)
	text = strings.ReplaceAll(text, " [title]", ". ")
	text = brackets.ReplaceAllString(text, "")
	return strings.ReplaceAll(text, "  ", " ")
}

// capitalized returns a text with only its first letter in upper case.
func capitalized(text string) string {
	first, size := utf8.DecodeRuneInString(text)
	if size == 0 {
		return ""
	}
	return string(unicode.ToTitle(first)) + strings.ToLower(text[size:])
}

func readMMLU(r record) (document, error) {
	d := document{choices: []string{"A", "B", "C", "D"}, answer: r.integer("answer"), subject: r.text("subject")}
	choices := r.texts("choices")
	if len(choices) != len(d.choices) {
		r.fail("choices", "%d choices, want %d", len(choices), len(d.choices))
		return d, r.err()
	}
	var b strings.Builder
	b.WriteString(strings.TrimFunc(r.text("question"), isSpace))
	for i, choice := range choices {
		fmt.Fprintf(&b, "\n%s. %s", d.choices[i], choice)
	}
	d.prompt = b.String() + "\nAnswer:"
	d.description = "The following are multiple choice questions (with answers) about " + strings.ReplaceAll(d.subject, "_", " ") + ".\n\n"
	return d, r.err()
}

func readMMLUPro(r record) (document, error) {
	const letters, step = "ABCDEFGHIJ", "Let's think step by step."
	d := document{letter: r.text("answer"), subject: r.text("category")}
	var b strings.Builder
	b.WriteString("Question:\n" + r.text("question") + "\nOptions:\n")
	for i, option := range r.texts("options") {
		if i == len(letters) {
			break
		}
		fmt.Fprintf(&b, "%c. %s\n", letters[i], strings.TrimFunc(option, isSpace))
	}
	d.prompt = b.String() + "Answer: " + step
	d.example = strings.ReplaceAll(r.text("cot_content"), "A: "+step+" ", "")
	d.description = "The following are multiple choice questions (with answers) about " + d.subject +
		". Think step by step and then finish your answer with \"the answer is (X)\" where X is the correct letter choice.\n"
	return d, r.err()
}

func readPIQA(r record) (document, error) {
	return document{
		prompt:  "Question: " + r.text("goal") + "\nAnswer:",
		choices: []string{r.text("sol1"), r.text("sol2")},
		answer:  r.integer("label"),
	}, r.err()
}

// isSpace reports whether Python considers a character whitespace.
func isSpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }
