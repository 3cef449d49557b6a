package checkpoint

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// ollamaReads are architectures that ollama imports from safetensors files.
var ollamaReads = []string{"LlamaForCausalLM", "MistralForCausalLM", "GemmaForCausalLM", "Gemma2ForCausalLM", "Phi3ForCausalLM"}

// commands writes commands that use the model. Other programs need a tokenizer that they know.
func (c Card) commands(b *bytes.Buffer, m cardModel) {
	if !m.tokenizer {
		return
	}
	chat := ""
	if m.chat {
		chat = " --chat"
	}
	fmt.Fprintf(b, "\n## Use\n\nRun these commands in the folder of this file:\n\n```sh\npsyche-client generate --model . --prompt \"Once upon a time\"%s\npsyche-client serve-model --model .   # OpenAI's API at http://127.0.0.1:8000/v1\n```\n", chat)
	b.WriteString("\n```python\nfrom transformers import pipeline\nprint(pipeline(\"text-generation\", \".\")(\"Once upon a time\"))\n```\n")
	b.WriteString("\nIf vLLM supports the architecture (not tested):\n\n```sh\nvllm serve . --dtype float32\n```\n")
	// ollama knows SentencePiece models, and the tokenizers of published models.
	if slices.Contains(ollamaReads, m.architecture) && (m.sentencePiece || hubName.MatchString(c.BaseModel)) {
		b.WriteString("\nWith ollama (not tested):\n\n```sh\necho \"FROM .\" > Modelfile && ollama create psyche-model -f Modelfile && ollama run psyche-model\n```\n")
	}
}

const maxCardText = 200 // characters of a text in a card

// prose returns a text as Markdown that renders as the same text, in one line, without links, HTML
// and formatting.
func prose(text string) string {
	var b strings.Builder
	digits, tail := true, ""
	for i, r := range oneLine(text) {
		list := i == 0 && strings.ContainsRune("-+=", r) || digits && r == '.'
		if list || strings.ContainsRune("\\`*_{}[]()<>#!|~&:@$^", r) || r == '.' && strings.EqualFold(tail, "www") {
			fmt.Fprintf(&b, "&#%d;", r)
		} else {
			b.WriteRune(r)
		}
		digits = digits && r >= '0' && r <= '9'
		tail = (tail + string(r))[max(0, len(tail)+len(string(r))-3):]
	}
	return b.String()
}

// code returns a text in a code span, which contains no formatting.
func code(text string) string {
	text = strings.Map(func(r rune) rune {
		if strings.ContainsRune("`|\\<>", r) {
			return ' '
		}
		return r
	}, oneLine(text))
	if text = strings.TrimSpace(text); text == "" {
		return ""
	}
	return "`" + text + "`"
}

// oneLine returns at most maxCardText printable characters of a text, in one line.
func oneLine(text string) string {
	var b strings.Builder
	n := 0
	for _, r := range strings.ToValidUTF8(text, " ") {
		if n == maxCardText {
			b.WriteString("…")
			break
		}
		if !unicode.IsPrint(r) || unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) {
			r = ' '
		}
		b.WriteRune(r)
		n++
	}
	return strings.TrimSpace(b.String())
}
