package checkpoint

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/psyche-go/psyche/base/pythonjson"
)

// CardFile is the model card of a checkpoint. It is not part of the model, so the digest does not cover it.
const CardFile = "README.md"

// cardMark is in every generated model card. A card without it was written by a person.
const cardMark = "<!-- written by psyche; remove this line to keep your own text -->"

const (
	maxCardSize    = 1 << 20 // bytes of a card that is read
	maxCardMembers = 100     // listed members
	maxCardData    = 16      // listed sources of data
)

// IsOwnCard reports whether Card generated the text. Only such a card may be replaced.
func IsOwnCard(text []byte) bool { return bytes.Contains(text, []byte(cardMark)) }

// Card describes a checkpoint for people. Text shows only fields that are set. Texts may come from
// other members: Text makes them harmless.
type Card struct {
	Facts
	Title     string
	About     string // one line
	BaseModel string // Hub repository of the first model
	License   string // of the first model, in the Hub's form
	Optimizer string
	Data      []CardSource
	Datasets  []string // data sets at the Hub
	Tokens    uint64   // 0: DataIndex × MaxSeqLen
	Loss      float64
	LossOf    string // description of Loss
	Run       string // hash that identifies the run, hex
	LogHash   string // of the newest entry of the run's log at the start of the round Step, hex
	LogEntry  uint64 // number of that entry
	Counted   CardRounds
	Members   []CardMember // of the rounds Counted
}

// CardSource is a source of training data: its kind in words, and its address or an empty string.
type CardSource struct{ What, Where string }

// CardRounds are the rounds whose counted results a card attributes to members.
type CardRounds struct {
	First, Last uint32
	Rounds      uint32 // between First and Last
	Complete    bool   // no round since the start of the run is missing
}

// CardMember is a member's part in the rounds of a card.
type CardMember struct {
	ID, Name  string
	Rounds    uint32 // with a counted result
	Sequences uint64 // of the counted results
}

// WriteCard writes the model card of a folder. It keeps a card that a person wrote.
func WriteCard(dir string, c Card) error {
	switch old, err := readCard(dir); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return fmt.Errorf("model card: %w", err)
	case !IsOwnCard(old):
		return nil
	}
	model, err := lookAt(dir)
	if err == nil {
		err = placeCard(dir, c.text(model))
	}
	if err != nil {
		return fmt.Errorf("model card: %w", err)
	}
	return nil
}

// placeCard replaces the model card of a folder. It writes a temporary file next to the folder, because a
// file that remained in the folder would not be part of a checkpoint.
func placeCard(dir string, text []byte) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	temporary := filepath.Join(filepath.Dir(dir), "."+filepath.Base(dir)+".card")   // hidden: no file of the user has this name
	if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) { // of a killed process
		return err
	}
	if err := writeFile(temporary, text); err != nil {
		return errors.Join(err, os.Remove(temporary))
	}
	return os.Rename(temporary, filepath.Join(dir, CardFile))
}

// CardOf returns the model card in a folder, or a new card with the facts.
func CardOf(dir string, f Facts) ([]byte, error) {
	text, err := readCard(dir)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return text, err
	}
	model, err := lookAt(dir)
	if err != nil {
		return nil, fmt.Errorf("model card: %w", err)
	}
	return Card{Facts: f}.text(model), nil
}

// readCard reads the model card of a folder.
func readCard(dir string) ([]byte, error) {
	path := filepath.Join(dir, CardFile)
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxCardSize {
		return nil, fmt.Errorf("%w: %s is not a regular file of at most %d bytes; remove it", ErrInvalid, path, maxCardSize)
	}
	return os.ReadFile(path)
}

// holdsOwnCard reports whether a folder has a generated model card.
func holdsOwnCard(dir string) bool {
	text, err := readCard(dir)
	return err == nil && IsOwnCard(text)
}

// keptCard returns the card that a person wrote into the folder of a training, which has the optimizer's
// state. It returns nil if there is none.
func keptCard(dir string) ([]byte, error) {
	if _, err := os.Stat(filepath.Join(dir, optimizerFile)); err != nil {
		return nil, nil
	}
	text, err := readCard(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && IsOwnCard(text) {
		return nil, nil
	}
	return text, err
}

// cardModel are the facts about a model that its folder contains.
type cardModel struct {
	architecture  string
	parameters    uint64
	tokenizer     bool // a tokenizer that transformers reads
	sentencePiece bool
	chat          bool // a chat template
}

// lookAt returns the facts about the model in a folder. It reads no tensors.
func lookAt(dir string) (m cardModel, err error) {
	if m.parameters, err = CheckDir(dir); err != nil {
		return m, err
	}
	config, err := readCapped(filepath.Join(dir, ConfigFile))
	if err != nil {
		return m, err
	}
	var shown struct {
		Architectures []string `json:"architectures"`
	}
	_ = json.Unmarshal(pythonjson.Quoted(config), &shown) // CheckDir has already parsed it
	if len(shown.Architectures) > 0 {
		m.architecture = shown.Architectures[0]
	}
	has := func(name string) bool { _, err := os.Stat(filepath.Join(dir, name)); return err == nil }
	m.sentencePiece = has("tokenizer.model")
	m.tokenizer = m.sentencePiece || has("tokenizer.json")
	m.chat = has("chat_template.jinja")
	if settings, err := readCapped(filepath.Join(dir, "tokenizer_config.json")); err == nil {
		m.chat = m.chat || bytes.Contains(settings, []byte(`"chat_template"`))
	}
	return m, nil
}

// hubName and licenseName match names that need no escapes.
var (
	hubName     = regexp.MustCompile(`^[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}$`)
	licenseName = regexp.MustCompile(`^[a-z0-9][a-z0-9.+-]{0,63}$`)
)

// text returns the card: the metadata that the Hub's search requires, the facts, and commands.
func (c Card) text(m cardModel) []byte {
	var b bytes.Buffer
	c.metadata(&b)
	fmt.Fprintf(&b, "%s\n\n# %s\n\n", cardMark, prose(cmp.Or(c.Title, c.RunID)))
	if c.About != "" {
		fmt.Fprintf(&b, "%s\n\n", prose(c.About))
	}
	if c.Run != "" {
		b.WriteString("A language model that several machines trained together with Psyche.\n\n")
	}
	c.facts(&b, m)
	c.members(&b)
	c.commands(&b, m)
	if len(c.Digest) == 64 {
		fmt.Fprintf(&b, "\nThe digest covers the tensors and files of the model, but not this card; `%s` repeats it for programs. ", FactsFile)
	} else {
		b.WriteByte('\n')
	}
	b.WriteString("The model has not been evaluated or aligned.\n")
	return b.Bytes()
}

func (c Card) metadata(b *bytes.Buffer) {
	b.WriteString("---\nlibrary_name: transformers\npipeline_tag: text-generation\n")
	if licenseName.MatchString(c.License) {
		fmt.Fprintf(b, "license: %q\n", c.License)
	}
	if hubName.MatchString(c.BaseModel) {
		fmt.Fprintf(b, "base_model: %q\n", c.BaseModel)
	}
	sets := slices.DeleteFunc(slices.Clone(c.Datasets), func(name string) bool { return !hubName.MatchString(name) })
	slices.Sort(sets)
	if sets = slices.Compact(sets); len(sets) > 0 {
		b.WriteString("datasets:\n")
		for _, name := range sets[:min(len(sets), maxCardData)] {
			fmt.Fprintf(b, "- %q\n", name)
		}
	}
	b.WriteString("tags:\n- psyche\n- distributed-training\n---\n")
}

// facts writes the table about the model and its training.
func (c Card) facts(b *bytes.Buffer, m cardModel) {
	b.WriteString("| | |\n| --- | --- |\n")
	row := func(name string, shown bool, format string, values ...any) {
		if shown {
			fmt.Fprintf(b, "| %s | "+format+" |\n", append([]any{name}, values...)...)
		}
	}
	tokens := cmp.Or(c.Tokens, c.DataIndex*uint64(c.MaxSeqLen))
	row("Architecture", m.architecture != "", "%s", code(m.architecture))
	row("Parameters", true, "%d", m.parameters)
	row("First model", hubName.MatchString(c.BaseModel), "%s", code(c.BaseModel))
	row("Optimizer", c.Optimizer != "", "%s", prose(c.Optimizer))
	row("Rounds", true, "%d", c.Step)
	row("Epochs", c.Epoch > 0, "%d", c.Epoch)
	row("Tokens", tokens > 0, "%d", tokens)
	row("Tokens per sequence", c.MaxSeqLen > 0, "%d", c.MaxSeqLen)
	for _, source := range c.Data[:min(len(c.Data), maxCardData)] {
		row("Data", true, "%s", prose(source.What)+suffix(" ", code(source.Where)))
	}
	row("Data", len(c.Data) > maxCardData, "%d more sources", len(c.Data)-maxCardData)
	row("Final loss", c.Loss > 0, "%.4f nats per token%s", c.Loss, suffix(", ", prose(c.LossOf)))
	row("Run", c.Run != "", "%s", code(c.Run))
	row("Log", c.LogHash != "", "entry %d at the start of the last round, %s", c.LogEntry, code(c.LogHash))
	row("Digest", c.Digest != "", "%s", code(c.Digest))
}

// suffix returns text with a prefix, or nothing.
func suffix(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}

// members writes the table of members, the largest part first.
func (c Card) members(b *bytes.Buffer) {
	all := uint64(0)
	for _, m := range c.Members {
		all += m.Sequences
	}
	if all == 0 {
		return
	}
	listed := slices.Clone(c.Members)
	slices.SortFunc(listed, func(a, b CardMember) int {
		return cmp.Or(cmp.Compare(b.Sequences, a.Sequences), cmp.Compare(a.ID, b.ID))
	})
	fmt.Fprintf(b, "\n## Members\n\nResults that counted in rounds %d to %d", c.Counted.First, c.Counted.Last)
	if !c.Counted.Complete {
		fmt.Fprintf(b, ", in the %d rounds that the writer of this card saw", c.Counted.Rounds)
	}
	b.WriteString(". `psyche run receipt` proves a member's part from the run's log.\n\n| Member | Key | Counted rounds | Share |\n| --- | --- | ---: | ---: |\n")
	for _, m := range listed[:min(len(listed), maxCardMembers)] {
		fmt.Fprintf(b, "| %s | %s | %d | %.1f %% |\n", prose(m.Name), code(m.ID), m.Rounds, 100*float64(m.Sequences)/float64(all))
	}
	if more := len(listed) - maxCardMembers; more > 0 {
		fmt.Fprintf(b, "\n%d more members.\n", more)
	}
}
