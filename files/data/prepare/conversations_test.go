package prepare

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/psyche-go/psyche/base/golden"
)

// TestProvidedConversations reads lines that users of other programs reported.
func TestProvidedConversations(t *testing.T) {
	for name, test := range map[string]struct{ whole, learned string }{
		"openai-weight-0.jsonl":          {"uq\nabad\nuq2\nagood\n", "good\n"},
		"llamafactory-system.jsonl":      {"sSys10\nuQ10\naA10\n", "A10\n"},
		"sharegpt-assistant-first.jsonl": {"astarts\nuQ3\naA3\n", "starts\nA3\n"},
	} {
		line, err := os.ReadFile(filepath.Join("testdata", "outside", name))
		if err != nil {
			t.Fatal(err)
		}
		made, samples, err := converse(t, 128, map[string]string{"a.jsonl": string(line)})
		if err != nil || len(samples) != 1 || len(made.Unread) > 0 {
			t.Errorf("%s: got %v, %+v; want nil error and len(samples) == 1 and len(made.Unread) == 0", name, err, made)
			continue
		}
		var whole, learned []byte
		for i, id := range samples[0].Tokens {
			whole = append(whole, byte(id))
			if samples[0].Labels[i] == id {
				learned = append(learned, byte(id))
			}
		}
		if string(whole) != test.whole || string(learned) != test.learned {
			t.Errorf("%s: %q, learned %q; want %+v", name, whole, learned, test)
		}
	}
}

// TestRowsThatAreNotLearned checks that a key of the conversation masks all of its messages, and
// that other values mask nothing.
func TestRowsThatAreNotLearned(t *testing.T) {
	const talk, learned = `"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}]}`, "|UQ\nAa\n"
	for key, unread := range map[string]Unread{
		`"weight":0`: nil, `"weight":0.0`: nil, `"weight":false`: nil, `"train":false`: nil, `"train":0`: nil, `"loss":false`: nil, `"loss_mask":0`: nil, `"mask":"assistant"`: nil,
		`"weight":0.5`: {"weight": 1}, `"weight":"0"`: {"weight": 1}, `"loss":2.31`: {"loss": 1}, `"loss_mask":[0,1]`: {"loss_mask": 1}, `"weight":1`: {}, `"train":true`: {}, `"loss":null`: {}, `"mask":"user"`: {}, `"mask":"human"`: {},
		`"mask":"nobody"`: {"mask of the role nobody, which no message has": 1}, `"mask":"ASSISTANT"`: {"mask of the role ASSISTANT, which no message has": 1},
	} {
		made, samples, err := converse(t, 64, map[string]string{"a.jsonl": "{" + key + "," + talk})
		switch {
		case unread == nil && (!errors.Is(err, errNoSamples) || made.Unlearned != 1):
			t.Errorf("%s: %v, %+v", key, err, made)
		case unread != nil && (err != nil || shown(samples[0]) != learned || cmp.Diff(unread, made.Unread) != ""):
			t.Errorf("%s: %v, %+v", key, err, made)
		}
	}
	if _, _, err := converse(t, 64, map[string]string{"a.jsonl": `{"weight":0,"instruction":"do","output":"done"}`}); !errors.Is(err, errNoSamples) {
		t.Errorf("Alpaca: %v", err)
	}
}

// TestUnknownRoles checks that messages of unknown roles are written, not learned, and reported.
func TestUnknownRoles(t *testing.T) {
	for role, unread := range map[string]Unread{
		"bing": {"conversations of the role bing": 1}, "chatgpt": {"conversations of the role chatgpt": 1}, "": {"conversations of the role ": 1}, "Gpt": {"conversations of the role Gpt": 1},
		"system": {}, "tool": {}, "developer": {}, "observation": {},
	} {
		made, samples, err := converseBy(t, "{% for m in messages %}{{ m.content }}\n{% endfor %}", 64, map[string]string{"a.jsonl": `{"conversations":[{"from":"` + role + `","value":"x"},{"from":"gpt","value":"a"}]}`})
		if err != nil || shown(samples[0]) != "|X\na\n" || cmp.Diff(unread, made.Unread) != "" {
			t.Errorf("%s: got %v, %v; want nil error and shown(samples[0]) == \"|X\\na\\n\" and cmp.Diff(unread, made.Unread) == \"\"", role, err, made.Unread)
		}
	}
	_, _, err := converse(t, 64, map[string]string{"a.jsonl": `{"conversations":[{"from":"human","value":"q"},{"from":"bot","value":"a"}]}`})
	if !errors.Is(err, errNoSamples) {
		t.Error(err)
	}
	golden.Message(t, "bot", err)
}

// TestFilesOfConversations checks that arrays, as in Alpaca and LlamaFactory, and objects of
// several lines give the same samples as lines, in each encoding.
func TestFilesOfConversations(t *testing.T) {
	const first, second, want = `{"instruction":"do","input":"","output":"one"}`, `{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"two"}]}`, "|UDO\nAone\n|UQ\nAtwo\n"
	for name, content := range map[string]string{
		"a.jsonl": first + "\r\n\r\n" + second, "lines.json": first + "\n" + second, "a.json": "[" + first + ",\n" + second + "]\n", "indented.json": "[\n  " + strings.ReplaceAll(first, ",", ",\n    ") + ",\n  " + second + "\n]",
		"objects.json": strings.ReplaceAll(first, ",", ",\n") + "\n" + second, "marked.json": "\ufeff[" + first + "," + second + "]", "marked.jsonl": "\ufeff" + first + "\n" + second,
		"wide.json": utf16LE("\ufeff[" + first + "," + second + "]"), "wide.jsonl": utf16BE("\ufeff" + first + "\n" + second), "a.json.gz": packGzip(t, "["+first+","+second+"]"), "a.jsonl.gz": packGzip(t, first+"\n"+second),
		"python.json": "[" + strings.Replace(first, "{", `{"history":null,"system":null,`, 1) + "," + second + "]",
	} {
		made, samples, err := converse(t, 64, map[string]string{name: content})
		if err != nil || len(samples) != 1 || shown(samples[0]) != want || made.Conversations != 2 {
			t.Errorf("%s: got %v, %+v; want nil error and len(samples) == 1 and shown(samples[0]) == want and made.Conversations == 2", name, err, made)
		}
	}
	for name, content := range map[string]string{
		"a.json":    "[" + first + ",{]",
		"b.json":    "[" + first + ",{}]",
		"c.json":    "[" + first,
		"d.json":    first + first[:9],
		"e.json":    `["a"]`,
		"f.parquet": "PAR1",
		"g.csv":     "messages\n[]\n",
		"h.arrow":   "ARROW1",
		"i.jsonl":   packGzip(t, first),
		"j.json":    utf16LE("[" + first + "]"),
		"k.jsonl":   first + "\r" + second,
		"l.jsonl":   "version https://git-lfs.github.com/spec/v1\n",
	} {
		_, _, err := converse(t, 64, map[string]string{name: content})
		golden.Message(t, name, err)
	}
}

// TestDamagedCharacters checks that text that would be learned as U+FFFD is refused.
func TestDamagedCharacters(t *testing.T) {
	for name, line := range map[string]string{
		"Latin-1":              `{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"na` + "\xef" + `ve"}]}`,
		"half a pair":          `{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a\ud83d"}]}`,
		"other half":           `{"conversations":[{"from":"human","value":"\ude42 q"},{"from":"gpt","value":"a"}]}`,
		"Alpaca":               `{"instruction":"\ud800","output":"a"}`,
		"within tools":         `{"tools":"[{\"name\":\"\\ud800\"}]","messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}]}`,
		"within function_call": `{"conversations":[{"from":"human","value":"q"},{"from":"function_call","value":"{\"name\":\"f\",\"arguments\":{\"x\":\"\\ud800\"}}"}]}`,
	} {
		if _, _, err := converse(t, 64, map[string]string{"a.jsonl": line}); !errors.Is(err, errCharacters) {
			t.Errorf("%s: got %v; want error errCharacters", name, err)
		}
	}
	whole := `{"messages":[{"role":"user","content":"\ud83d\ude42 \\ud83d"},{"role":"assistant","content":"\ufffd"}]}`
	if _, _, err := converse(t, 64, map[string]string{"a.jsonl": whole}); err != nil {
		t.Error(err)
	}
}
