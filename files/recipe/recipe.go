package recipe

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Recipe has the settings of a run.
type Recipe struct {
	Choices []Choice
	Rounds  int
	Tokens  float64 // that the run trains in all rounds
	Passes  float64 // over the text

	seqLen    int
	tokenSize int
}

// Of returns the recipe for a request. Its errors match ErrRequest or ErrText.
func Of(r Request) (Recipe, error) {
	if err := r.Check(); err != nil {
		return Recipe{}, err
	}
	if r.Parameters == 0 || r.MaxTokens <= 0 || !(r.Speed > 0) || r.TokenSize != 2 && r.TokenSize != 4 {
		return Recipe{}, fmt.Errorf("%w: the facts are incomplete: %+v", ErrRequest, r.Facts)
	}
	p, err := newPlan(r)
	if err != nil {
		return Recipe{}, err
	}
	return Recipe{
		Choices: p.table(), Rounds: p.rounds, Tokens: p.tokens, Passes: p.tokens / float64(r.Tokens),
		seqLen: p.seqLen, tokenSize: r.TokenSize,
	}, nil
}

// StateTOML returns the state.toml of the run, with the reason for each value as a comment. intro has
// lines for the beginning of the file.
func (r Recipe) StateTOML(intro ...string) []byte {
	var text strings.Builder
	for _, line := range intro {
		fmt.Fprintf(&text, "# %s\n", line)
	}
	section := ""
	for _, c := range r.Choices {
		if c.Section != section || strings.HasPrefix(c.Section, "[") { // each entry of an array has its own header
			section = c.Section
			fmt.Fprintf(&text, "\n[%s]\n", section)
		}
		fmt.Fprintf(&text, "# %s\n%s = %s\n", sentence(c.Reason), c.Key, Literal(c.Value))
	}
	return []byte(text.String())
}

// sentence returns a reason as a sentence.
func sentence(reason string) string {
	reason = strings.ToUpper(reason[:1]) + reason[1:]
	if !strings.HasSuffix(reason, ".") {
		reason += "."
	}
	return reason
}

// Literal returns a value as TOML.
func Literal(value any) string {
	switch v := value.(type) {
	case string:
		return strconv.Quote(v)
	case float64:
		if v == math.Trunc(v) && v >= 1 {
			return strconv.FormatFloat(v, 'f', 1, 64)
		}
		return strconv.FormatFloat(v, 'g', 6, 64)
	case []float64:
		var parts []string
		for _, one := range v {
			parts = append(parts, Literal(one))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	return fmt.Sprint(value)
}

// DataTOML returns the data.toml for the token files in a folder, relative to the file.
func (r Recipe) DataTOML(dir string) []byte {
	size := map[int]string{2: "TwoBytes", 4: "FourBytes"}[r.tokenSize]
	return fmt.Appendf(nil, `# The token files that the data server sends to members.
seq_len = %d
dir = %s
token_size = %q
# The order of the sequences. Every pass over the text has a different order.
shuffle_seed = [7%s]
`, r.seqLen, strconv.Quote(dir), size, strings.Repeat(", 0", 31))
}
