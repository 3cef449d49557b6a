package prepare

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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
	for want, line := range map[string]string{
		"message 1: weight is 0.5, want true or 1 to learn the message, or false or 0": `{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a","weight":0.5}]}`,
		`message 0: train is "no", want true or 1 to learn the message, or false or 0`: `{"messages":[{"role":"assistant","content":"a","train":"no"}]}`,
		`message 0: mask is "1", want false or 0 to learn the message, or true or 1`:   `{"messages":[{"role":"assistant","content":"a","mask":"1"}]}`,
		`message 1: weight is "0", want true or 1`:                                     `{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a","weight":"0"}]}`,
		`message 0: weight is 2, want true or 1`:                                       `{"messages":[{"role":"assistant","content":"a","weight":2}]}`,
		`message 0: weight is -1, want true or 1`:                                      `{"messages":[{"role":"assistant","content":"a","weight":-1}]}`,
		`message 0: loss_mask is [0,1], want true or 1`:                                `{"messages":[{"role":"assistant","content":"a","loss_mask":[0,1]}]}`,
		`message 0: train is {}, want true or 1`:                                       `{"messages":[{"role":"assistant","content":"a","train":{}}]}`,
		`history: want a list of pairs of texts: item 0 is not`:                        `{"instruction":"do","output":"x","history":[["a"]]}`,
		`history: want a list of pairs of texts: item 1 is not`:                        `{"instruction":"do","output":"x","history":[["a","b"],["c",null]]}`,
		`history: want a list of pairs of texts: item 0 is not a pair`:                 `{"instruction":"do","output":"x","history":[["a","b","c"]]}`,
		"message 0: weight and train contradict each other":                            `{"messages":[{"role":"assistant","content":"a","weight":0,"train":true}]}`,
		"the key system and the first message (role system) differ":                    `{"system":"x","messages":[{"role":"system","content":"y"},{"role":"assistant","content":"a"}]}`,
		"system is 5, want a text":                                                     `{"system":5,"messages":[{"role":"assistant","content":"a"}]}`,
		"mask is true, want a role name":                                               `{"mask":true,"messages":[{"role":"assistant","content":"a"}]}`,
		"message 0: both role and from are set":                                        `{"messages":[{"role":"user","from":"human","content":"a"}]}`,
		"output is missing, want a text":                                               `{"instruction":"do"}`,
		"history: want a list of pairs of texts":                                       `{"instruction":"do","output":"x","history":"h"}`,
		`message 0: name is 5, want a text or null`:                                    `{"messages":[{"role":"user","content":"a","name":5}]}`,
		`tools is "nothing", want a list`:                                              `{"tools":"nothing","messages":[{"role":"assistant","content":"a"}]}`,
		`message 0: function_call is "f()", want JSON with name and arguments`:         `{"conversations":[{"from":"function_call","value":"f()"}]}`,
		"want an object with exactly one of: messages (role, content), conversations (from, value), or instruction and output": `[]`,
	} {
		if _, _, err := converse(t, 64, map[string]string{"a.jsonl": line}); err == nil || !strings.Contains(err.Error(), "a.jsonl, line 1: "+want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	for want, line := range map[string]string{
		`unknown key "id"; remove it, or omit --strict`:                             `{"id":1,"messages":[{"role":"assistant","content":"a"}]}`,
		`mask is "nobody", but no message has this role, so nothing is masked`:      `{"mask":"nobody","messages":[{"role":"assistant","content":"a"}]}`,
		`message 0: unknown key "messages.reasoning"`:                               `{"messages":[{"role":"assistant","content":"a","reasoning":"b"}]}`,
		`message 0: unknown key "conversations.weight of the role user"; remove it`: `{"conversations":[{"from":"human","value":"a","weight":1}]}`,
	} {
		read := talks{strict: true, unread: Unread{}}
		if _, err := read.conversation([]byte(line)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
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
