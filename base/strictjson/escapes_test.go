package strictjson

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/fuzztest"
)

func TestCheckEscapes(t *testing.T) {
	for text, good := range map[string]bool{
		``: true, `"a"`: true, `"\u00e9 \ud83d\ude00 \\ud800 \ufffd"`: true, `"\uD83D\uDE00"`: true, "\"\xff\"": false,
		`"\ud800"`: false, `"\udc00"`: false, `"\ud800\u0041"`: false, `"\ud83d\ud83d\ude00"`: false, `"\ud83dx"`: false, `"\uDFFF`: false,
	} {
		if err := CheckEscapes([]byte(text)); (err == nil) != good {
			t.Errorf("%s: got %v; want (err == nil) == good", text, err)
		}
	}
}

// FuzzCheckEscapes checks that accepted JSON decodes to a replacement character only if the text
// contains one.
func FuzzCheckEscapes(f *testing.F) {
	f.Add(`"\ud83d\ude00\ud800"`)
	fuzztest.Run(f, func(t *testing.T, text string) {
		var value string
		if CheckEscapes([]byte(text)) != nil || json.Unmarshal([]byte(text), &value) != nil {
			return
		}
		if strings.Contains(value, "\uFFFD") && !strings.Contains(strings.ToLower(text), `\ufffd`) && !strings.Contains(text, "\uFFFD") {
			t.Fatalf("%s is %q", text, value)
		}
	})
}
