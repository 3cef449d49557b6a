package prepare

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/files/data/preprocessed"
	"github.com/psyche-go/psyche/files/tokenizer"
	"github.com/psyche-go/psyche/files/tokenizer/chat"
)

// talk is a template with one letter for each role.
const talk = "{% for m in messages %}{{ m.role[0] ~ m.content }}\n{% endfor %}{% if add_generation_prompt %}a{% endif %}"

func converse(t *testing.T, seqLen int, files map[string]string) (Samples, []preprocessed.Sample, error) {
	t.Helper()
	return converseBy(t, talk, seqLen, files)
}

func converseBy(t *testing.T, source string, seqLen int, files map[string]string) (Samples, []preprocessed.Sample, error) {
	t.Helper()
	dir := t.TempDir()
	template, err := chat.Parse(source)
	if err != nil {
		t.Fatal(err)
	}
	o := SampleOptions{Output: filepath.Join(dir, "samples"), SeqLen: seqLen, Tokenizer: tokenizer.Bytes(), Template: template}
	for name, text := range files {
		o.Paths = append(o.Paths, filepath.Join(dir, name))
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(o.Paths)
	made, err := Converse(t.Context(), o)
	if err != nil {
		if left, _ := os.ReadDir(o.Output); len(left) > 0 {
			t.Errorf("%v are left", left)
		}
		return made, nil, err
	}
	if _, err := Converse(t.Context(), o); err == nil {
		t.Error("the same folder can be used again")
	}
	d, err := preprocessed.Open(o.Output, preprocessed.Options{SeqLen: seqLen, VocabSize: 256})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	var indices []uint64
	for i := range d.Len() {
		indices = append(indices, i)
	}
	samples, err := d.Read(t.Context(), indices)
	if err != nil {
		t.Fatal(err)
	}
	return made, samples, nil
}

// shown writes a sample as its text, with unlearned text in capitals, and | before each
// conversation.
func shown(s preprocessed.Sample) string {
	var out strings.Builder
	for i, id := range s.Tokens {
		if s.Positions[i] == 0 {
			out.WriteByte('|')
		}
		letter := []byte{byte(id)}
		if s.Labels[i] == preprocessed.IgnoreLabel {
			letter = bytes.ToUpper(letter)
		} else if s.Labels[i] != id {
			letter = []byte("?")
		}
		out.Write(letter)
	}
	return out.String()
}

// TestConverse packs conversations of both kinds, and leaves out conversations that are too long or
// have no answer.
func TestConverse(t *testing.T) {
	files := map[string]string{
		"a.jsonl": `{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"yes"}]}` + "\n\n" +
			`{"conversations":[{"from":"system","value":"x"},{"from":"human","value":"q"},{"from":"gpt","value":"b"},{"from":"human","value":"r"},{"from":"gpt","value":"c"}]}` + "\n" +
			`{"messages":[{"role":"user","content":"no answer"}]}` + "\n",
		"b.jsonl.gz": packGzip(t, `{"messages":[{"role":"user","content":"much too long for a sample"},{"role":"assistant","content":"yes"}]}`+"\n"+
			`{"messages":[{"role":"user","content":"o"},{"role":"assistant","content":"p"}]}`+"\n"),
	}
	made, samples, err := converse(t, 23, files)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range samples {
		got = append(got, shown(s))
	}
	want := []string{"|UHI\nAyes\n", "|SX\nUQ\nAb\nUR\nAc\n|UO\nAp\n"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if made.Samples != 2 || made.Conversations != 5 || made.Long != 1 || made.Unlearned != 1 || made.Refused != 0 || made.Learned != 4+2+2+2 {
		t.Errorf("%+v", made)
	}
}

// TestConverseWithTools checks that the template gets tools and calls of tools.
func TestConverseWithTools(t *testing.T) {
	_, samples, err := converseBy(t, "{{ tools|tojson }}{% for m in messages %}{% if m.role == 'tool' %}t{{ m.tool_call_id }}{% endif %}{{ m.content or '' }}{% for c in m.tool_calls or [] %}{{ c.id }}{% endfor %}{% endfor %}", 64, map[string]string{
		"a.jsonl": `{"tools":[{"n":0.5}],"messages":[{"role":"user","content":"q"},{"role":"assistant","content":null,"tool_calls":[{"id":"x"}]},{"role":"tool","content":"r","tool_call_id":"x"},{"role":"assistant","content":"yes"}]}` + "\n" +
			`{"tools":[],"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a","tool_calls":null}]}`,
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := shown(samples[0]), `|[{"N": 0.5}]QxTXRyes|[]Qa`; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestConverseWithEmptyContent learns an empty text for an empty content, none for null, and
// nothing for an absent content.
func TestConverseWithEmptyContent(t *testing.T) {
	line := func(content string) string {
		return `{"messages":[{"role":"user","content":"q"},{"role":"assistant",` + content + `"tool_calls":[{"id":"x","function":{"name":"f","arguments":""}}]},{"role":"tool","tool_call_id":"x","content":""},{"role":"assistant","content":"yes"}]}`
	}
	const template = "{% for m in messages %}{{ m.content }}/{% endfor %}"
	for content, want := range map[string]string{`"content":"",`: "|Q/" + "//" + "YES/", `"content":null,`: "|Q/None//YES/", ``: "|Q///YES/"} {
		_, samples, err := converseBy(t, template, 64, map[string]string{"a.jsonl": line(content)})
		if err != nil {
			t.Fatal(err)
		}
		if got := shown(samples[0]); !strings.EqualFold(got, want) {
			t.Errorf("%s: %q, want %q", content, got, want)
		}
	}
	// A template that joins texts accepts an empty text.
	if _, _, err := converseBy(t, "{% for m in messages %}{{ m.content + '/' }}{% endfor %}", 64, map[string]string{"a.jsonl": line(`"content":"",`)}); err != nil {
		t.Error(err)
	}
}

func TestConverseErrors(t *testing.T) {
	for name, content := range map[string]string{
		"message parts":     "\n" + `{"messages":[{"role":"user","content":[{"type":"text"}]}]}`,
		"no conversation":   `{"text":"a"}`,
		"two conversations": `{"messages":[],"conversations":[]}`,
		"no assistant":      `{"messages":[{"role":"user","content":"a"}]}`,
		"an empty list":     `{"messages":[]}`,
	} {
		_, _, err := converse(t, 24, map[string]string{"a.jsonl": content})
		golden.Message(t, name, err)
	}
}
