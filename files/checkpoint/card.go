package checkpoint

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/psyche-go/psyche/base/pythonjson"
)

// CardFile is the model card of a repository at the Hub.
const CardFile = "README.md"

// cardMark is in every generated model card. A card without it was written by a person.
const cardMark = "<!-- written by psyche; remove this line to keep your own text -->"

// IsOwnCard reports whether Card generated the text. Only such a card may be replaced.
func IsOwnCard(text []byte) bool { return bytes.Contains(text, []byte(cardMark)) }

// Card returns the model card of a run's checkpoint: the metadata that the Hub's search requires,
// and the facts of the run. config is the content of config.json.
func Card(f Facts, config []byte) []byte {
	var shown struct {
		Architectures []string `json:"architectures"`
	}
	_ = json.Unmarshal(pythonjson.Quoted(config), &shown) // the checkpoint's reader has already parsed it
	var b bytes.Buffer
	b.WriteString("---\nlibrary_name: transformers\npipeline_tag: text-generation\ntags:\n- psyche\n- distributed-training\n---\n")
	fmt.Fprintf(&b, "%s\n\n# %s\n\n", cardMark, oneLine(f.RunID))
	b.WriteString("A language model in training. This is the newest checkpoint of a decentralised run. The repository's history has the earlier checkpoints, one commit each.\n\n")
	b.WriteString("| | |\n| --- | --- |\n")
	row := func(name string, value any) { fmt.Fprintf(&b, "| %s | %v |\n", name, value) }
	if len(shown.Architectures) > 0 {
		row("Architecture", oneLine(shown.Architectures[0]))
	}
	row("Steps", f.Step)
	row("Epochs", f.Epoch)
	row("Sequences seen", f.DataIndex)
	if f.MaxSeqLen > 0 {
		row("Tokens per sequence", f.MaxSeqLen)
		row("Tokens seen", f.DataIndex*uint64(f.MaxSeqLen))
	}
	row("Digest", "`"+f.Digest+"`")
	fmt.Fprintf(&b, "\nThe digest covers the tensors and files that all members of the run agreed upon; `%s` repeats the digest for programs. ", FactsFile)
	b.WriteString("The model has not been evaluated or aligned beyond what the run's own pages report.\n")
	return b.Bytes()
}

// oneLine returns text in a form that cannot leave its table cell.
func oneLine(text string) string {
	return string(bytes.Map(func(r rune) rune {
		if r < ' ' || r == '|' || r == '<' || r == '>' || r == '`' {
			return ' '
		}
		return r
	}, []byte(text)))
}
