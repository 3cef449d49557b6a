package receipt

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/fuzztest"
	"github.com/psyche-go/psyche/base/golden"
)

// badged is a receipt for badges.
var badged = Receipt{RunID: "tiny-stories", Member: "4uQeVj5tqViQh7yWWGStvkEG1Zmhx6uasJtWCJziofM", Entries: 902, Head: strings.Repeat("b6", 32), Rounds: 38, Tokens: 1250, AllTokens: 10000}

func TestBadgeGolden(t *testing.T) {
	once := badged
	once.Rounds = 1
	golden.Compare(t, "badge.svg", badged.Badge("Ada Lovelace", 901))
	golden.Compare(t, "badge-nameless.svg", once.Badge("", 901))
}

// FuzzBadge checks that no name and no run changes the structure of a badge.
func FuzzBadge(f *testing.F) {
	f.Add("Ada", "run")
	f.Add("</text><script>alert(1)</script>", "\"'&<>]]>")
	f.Add("\x00\xff\u202e\u2028", strings.Repeat("数", 100))
	elements := func(t *testing.T, svg []byte) (names []string, texts int) {
		t.Helper()
		for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				return names, texts
			}
			if err != nil {
				t.Fatalf("%v in\n%s", err, svg)
			}
			switch token := token.(type) {
			case xml.StartElement:
				names = append(names, token.Name.Local)
			case xml.CharData:
				texts = max(texts, len([]rune(string(token))))
			}
		}
	}
	fuzztest.Run(f, func(t *testing.T, name, run string) {
		r := badged
		r.RunID = run
		want, _ := elements(t, badged.Badge("Ada", 901))
		got, longest := elements(t, r.Badge(name, 901))
		if !slices.Equal(got, want) || longest > 160 {
			t.Errorf("%q, %q: elements %v, texts of up to %d characters", name, run, got, longest)
		}
	})
}
