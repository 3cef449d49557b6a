package prepare

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/psyche-go/psyche/base/golden"
)

// TestKeysOfConversations checks, for each layout, that the keys that change a conversation are
// applied. In the expected samples, text in capitals is not learned.
func TestKeysOfConversations(t *testing.T) {
	for name, test := range map[string]struct{ line, want string }{
		"OpenAI": {
			`{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"bad","weight":0},{"role":"user","content":"r"},{"role":"assistant","content":"good","weight":1}],"parallel_tool_calls":null}`,
			"|UQ\nABAD\nUR\nAgood\n",
		},
		"Mistral": {
			`{"messages":[{"role":"system","content":"s"},{"role":"user","content":"q"},{"role":"assistant","content":"good","weight":1.0},{"role":"user","content":"r"},{"role":"assistant","content":"bad","weight":0.0}]}`,
			"|SS\nUQ\nAgood\nUR\nABAD\n",
		},
		"Together": {
			`{"messages":[{"role":"user","content":"q","weight":0},{"role":"assistant","content":"bad","weight":0},{"role":"user","content":"r"},{"role":"assistant","content":"good"}]}`,
			"|UQ\nABAD\nUR\nAgood\n",
		},
		"Axolotl": {
			`{"messages":[{"role":"system","content":"s","train":false},{"role":"user","content":"q","train":false},{"role":"assistant","content":"bad","train":false},{"role":"user","content":"r"},{"role":"assistant","content":"good","train":true}]}`,
			"|SS\nUQ\nABAD\nUR\nAgood\n",
		},
		"ShareGPT": {
			`{"conversations":[{"from":"human","value":"q"},{"from":"gpt","value":"a"}]}`, "|UQ\nAa\n",
		},
		"roles in conversations": {
			`{"conversations":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}]}`, "|UQ\nAa\n",
		},
		"assistant first": {
			`{"conversations":[{"from":"gpt","value":"starts"},{"from":"human","value":"q"},{"from":"gpt","value":"a"}]}`, "|Astarts\nUQ\nAa\n",
		},
		"LlamaFactory": {
			`{"system":"sys","tools":"","conversations":[{"from":"human","value":"q"},{"from":"gpt","value":"a"}]}`, "|SSYS\nUQ\nAa\n",
		},
		"system twice":         {`{"system":"x","messages":[{"role":"system","content":"x"},{"role":"user","content":"q"},{"role":"assistant","content":"a"}]}`, "|SX\nUQ\nAa\n"},
		"system null":          {`{"system":null,"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}]}`, "|UQ\nAa\n"},
		"NeMo":                 {`{"system":"x","mask":"User","conversations":[{"from":"User","value":"q"},{"from":"Assistant","value":"a"}]}`, "|SX\nUQ\nAa\n"},
		"mask":                 {`{"messages":[{"role":"user","content":"q","mask":true},{"role":"assistant","content":"bad","mask":true},{"role":"assistant","content":"a","mask":false}]}`, "|UQ\nABAD\nAa\n"},
		"ms-swift":             {`{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"bad","loss":false},{"role":"assistant","content":"a","loss":true}]}`, "|UQ\nABAD\nAa\n"},
		"loss_mask":            {`{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"bad","loss_mask":0},{"role":"assistant","content":"a","loss_mask":1}]}`, "|UQ\nABAD\nAa\n"},
		"Alpaca":               {`{"instruction":"do","input":"it","output":"done"}`, "|UDO\nIT\nAdone\n"},
		"Alpaca, all":          {`{"system":"x","instruction":"do","input":"","output":"done","history":[["h","i"]]}`, "|SX\nUH\nAi\nUDO\nAdone\n"},
		"weights as Booleans":  {`{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"bad","weight":false},{"role":"assistant","content":"a","weight":true}]}`, "|UQ\nABAD\nAa\n"},
		"weights as fractions": {`{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"bad","weight":-0.0},{"role":"assistant","content":"a","weight":1e0}]}`, "|UQ\nABAD\nAa\n"},
		"train as a number":    {`{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"bad","train":0},{"role":"assistant","content":"a","train":1}]}`, "|UQ\nABAD\nAa\n"},
		"choices null":         {`{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a","weight":null,"train":null,"mask":null,"loss":null}],"weight":null}`, "|UQ\nAa\n"},
		"masks as numbers":     {`{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"bad","mask":1},{"role":"assistant","content":"bad","loss":0},{"role":"assistant","content":"a","mask":0,"loss_mask":true}]}`, "|UQ\nABAD\nABAD\nAa\n"},
		"two answers first":    {`{"messages":[{"role":"assistant","content":"one","weight":0},{"role":"assistant","content":"two"},{"role":"user","content":"q"},{"role":"assistant","content":"a"}]}`, "|AONE\nAtwo\nUQ\nAa\n"},
		"row to be learned":    {`{"weight":1,"train":true,"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"bad","weight":0},{"role":"assistant","content":"a"}]}`, "|UQ\nABAD\nAa\n"},
		"system and messages":  {`{"system":"x","conversations":[{"from":"system","value":"x"},{"from":"human","value":"q"},{"from":"gpt","value":"a"}]}`, "|SX\nUQ\nAa\n"},
		"empty system":         {`{"system":"","messages":[{"role":"system","content":"y"},{"role":"user","content":"q"},{"role":"assistant","content":"a"}]}`, "|SY\nUQ\nAa\n"},
		"Alpaca, no question":  {`{"instruction":"","input":"it","output":"done","system":""}`, "|UIT\nAdone\n"},
		"keys that agree":      {`{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"bad","weight":0,"train":false,"mask":true},{"role":"assistant","content":"a"}]}`, "|UQ\nABAD\nAa\n"},
	} {
		made, samples, err := converse(t, 64, map[string]string{"a.jsonl": test.line})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := shown(samples[0]); got != test.want || len(made.Unread) > 0 {
			t.Errorf("%s: %q, not read %v; want %q", name, got, made.Unread, test.want)
		}
	}
}

// TestUnreadKeys counts unread keys. A null, and a choice that changes nothing, do not count.
func TestUnreadKeys(t *testing.T) {
	made, _, err := converse(t, 64, map[string]string{"a.jsonl": `{"id":1,"messages":[{"role":"user","content":"q","weight":1,"audio":null},{"role":"assistant","content":"a","reasoning":"r"}]}
{"id":2,"source":"x","conversations":[{"from":"human","value":"q","train":false},{"from":"gpt","value":"a","train_detail":[]}]}
`})
	if err != nil {
		t.Fatal(err)
	}
	want := Unread{"id": 2, "source": 1, "messages.reasoning": 1, "conversations.train_detail": 1, "messages.weight of the role user": 1}
	if diff := cmp.Diff(want, made.Unread); diff != "" {
		t.Error(diff)
	}
	if got, want := made.Unread.String(), `"conversations.train_detail" 1 times, "id" 2 times, "messages.reasoning" 1 times, "messages.weight of the role user" 1 times, "source" 1 times`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestUnreadKeysAreBounded checks that the number of counted keys is bounded, because the names of
// keys come from the data.
func TestUnreadKeysAreBounded(t *testing.T) {
	read := talks{unread: Unread{}}
	for i := range 1000 {
		if err := read.note(strings.Repeat("k", i)); err != nil {
			t.Fatal(err)
		}
	}
	if len(read.unread) != maxUnread+1 || read.unread["(other keys)"] != 1000-maxUnread {
		t.Errorf("%d keys, %v", len(read.unread), read.unread["(other keys)"])
	}
}

func TestConversationsThatAreRefused(t *testing.T) {
	for name, line := range map[string]string{
		"weight 0.5":             `{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a","weight":0.5}]}`,
		"train no":               `{"messages":[{"role":"assistant","content":"a","train":"no"}]}`,
		"mask 1 as text":         `{"messages":[{"role":"assistant","content":"a","mask":"1"}]}`,
		"weight 0 as text":       `{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a","weight":"0"}]}`,
		"weight 2":               `{"messages":[{"role":"assistant","content":"a","weight":2}]}`,
		"weight -1":              `{"messages":[{"role":"assistant","content":"a","weight":-1}]}`,
		"list as loss_mask":      `{"messages":[{"role":"assistant","content":"a","loss_mask":[0,1]}]}`,
		"object as train":        `{"messages":[{"role":"assistant","content":"a","train":{}}]}`,
		"history of one text":    `{"instruction":"do","output":"x","history":[["a"]]}`,
		"history with null":      `{"instruction":"do","output":"x","history":[["a","b"],["c",null]]}`,
		"history of three texts": `{"instruction":"do","output":"x","history":[["a","b","c"]]}`,
		"contradiction":          `{"messages":[{"role":"assistant","content":"a","weight":0,"train":true}]}`,
		"two system texts":       `{"system":"x","messages":[{"role":"system","content":"y"},{"role":"assistant","content":"a"}]}`,
		"system 5":               `{"system":5,"messages":[{"role":"assistant","content":"a"}]}`,
		"mask without a role":    `{"mask":true,"messages":[{"role":"assistant","content":"a"}]}`,
		"role and from":          `{"messages":[{"role":"user","from":"human","content":"a"}]}`,
		"no output":              `{"instruction":"do"}`,
		"text as history":        `{"instruction":"do","output":"x","history":"h"}`,
		"name 5":                 `{"messages":[{"role":"user","content":"a","name":5}]}`,
		"text as tools":          `{"tools":"nothing","messages":[{"role":"assistant","content":"a"}]}`,
		"text as function_call":  `{"conversations":[{"from":"function_call","value":"f()"}]}`,
		"list":                   `[]`,
	} {
		_, _, err := converse(t, 64, map[string]string{"a.jsonl": line})
		golden.Message(t, name, err)
	}
	for name, line := range map[string]string{
		"unknown key":              `{"id":1,"messages":[{"role":"assistant","content":"a"}]}`,
		"unknown role in mask":     `{"mask":"nobody","messages":[{"role":"assistant","content":"a"}]}`,
		"unknown key of a message": `{"messages":[{"role":"assistant","content":"a","reasoning":"b"}]}`,
		"unknown key of a role":    `{"conversations":[{"from":"human","value":"a","weight":1}]}`,
	} {
		read := talks{strict: true, unread: Unread{}}
		_, err := read.conversation([]byte(line))
		golden.Message(t, name, err)
	}
}

// TestEmptyNames checks that templates distinguish empty, null and absent names and ids of calls.
func TestEmptyNames(t *testing.T) {
	for line, want := range map[string]string{`"name":"","tool_call_id":""`: `""`, `"name":null,"tool_call_id":null`: "null", `"weight":0`: ""} {
		in, err := talks{unread: Unread{}}.conversation([]byte(`{"messages":[{"role":"assistant","content":"a",` + line + `}]}`))
		if err != nil {
			t.Fatal(err)
		}
		if m := in.Messages[0]; string(m.Name) != want || string(m.CallID) != want {
			t.Errorf("%s: name %s, id %s", line, m.Name, m.CallID)
		}
	}
}

// TestLlamaFactoryTools checks that LlamaFactory's calls and tools are read, which are texts of
// JSON.
func TestLlamaFactoryTools(t *testing.T) {
	line := `{"tools":"[{\"n\":1}]","conversations":[{"from":"human","value":"q"},{"from":"function_call","value":"{\"name\":\"f\",\"arguments\":{\"x\":1}}"},{"from":"observation","value":"r"},{"from":"gpt","value":"a"}]}`
	in, err := talks{unread: Unread{}}.conversation([]byte(line))
	if err != nil {
		t.Fatal(err)
	}
	if string(in.Tools) != `[{"n":1}]` || string(in.Messages[1].Calls) != `[{"type":"function","function":{"name":"f","arguments":{"x":1}}}]` {
		t.Errorf("tools %s, calls %s", in.Tools, in.Messages[1].Calls)
	}
	var got []string
	for _, m := range in.Messages {
		got = append(got, m.Role)
	}
	if diff := cmp.Diff([]string{"user", "assistant", "tool", "assistant"}, got); diff != "" {
		t.Error(diff)
	}
}
