package chat

import "testing"

func TestUses(t *testing.T) {
	template, err := Parse(`<|start|>{% for m in messages %}{% if m.role in ['system', "developer"] and m['content'] is defined %}` +
		`{{ '\n<tool_call>' ~ m.tool_calls }}{% endif %}{% endfor %}{# unused #} other {{ "tools" }}`)
	if err != nil {
		t.Fatal(err)
	}
	for word, want := range map[string]bool{
		"developer": true, "tool_calls": true, "content": true, "messages": true, "tools": true,
		"develop": false, "unused": false, "other": false, "tool": false, "": false,
	} {
		if template.Reads(word) != want {
			t.Errorf("reads %q: %v", word, !want)
		}
	}
	for text, want := range map[string]bool{"<|start|>": true, "\n<tool_call>": true, "oth": true, "unused": false, "m.role": false, "</tool_call>": false} {
		if template.Contains(text) != want {
			t.Errorf("contains %q: %v", text, !want)
		}
	}
}
