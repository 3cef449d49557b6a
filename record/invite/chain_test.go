package invite

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/fuzztest"
	"github.com/psyche-go/psyche/base/identity"
)

var testAuthority = identity.FromSeed([identity.SeedSize]byte{2}).ID()

// TestChainLink: a link is read as it was written, and may be typed in quotes.
func TestChainLink(t *testing.T) {
	for _, want := range []ChainLink{
		{testKey, "friends", testAuthority, []string{"http://127.0.0.1:8899"}},
		{testKey, "a run/of é", testAuthority, []string{"https://api.devnet.solana.com", "https://node.example/path?key=a%20b&c=1'", "http://[2001:db8::1]:1"}},
		{testKey, strings.Repeat("é", 32), testAuthority, []string{"http://h/" + strings.Repeat("'", maxAddress-len("http://h/"))}},
	} {
		text := want.String()
		if !IsChain(text) || !IsChain("'"+text+"'") || IsChain(link("host/r")) || strings.ContainsAny(text, "' \t\n\"\\$`") || len(text) > maxChainSize {
			t.Errorf("%s is not a link to a run on a chain", text)
		}
		if got, err := ParseChain("'" + text + "'"); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
}

// TestChainLinkErrors: each part that is wrong is named.
func TestChainLinkErrors(t *testing.T) {
	good := ChainLink{testKey, "r", testAuthority, []string{"http://h"}}.String()
	none := identity.ID{}.String()
	for text, part := range map[string]string{
		"":                  "starts with",
		link("host/r"):      "want psyche+solana://PROGRAM/RUN",
		good[:len(good)-12]: `node "ht"`,
		good + "&key=1":     `unknown part "key=1"`,
		good + "&authority=" + testAuthority.String():          "2 authorities",
		strings.Split(good, "&")[0]:                            "a shell cuts it",
		strings.Split(good, "?")[0]:                            "0 authorities",
		good + strings.Repeat("&rpc=http%3A%2F%2Fh", maxNodes): "4 nodes",
		good + "&rpc=ftp%3A%2F%2Fh":                            `node "ftp://h"`,
		good + "&rpc=http%3A%2F%2Fa%3Ab%40h":                   "without a name before an @",
		good + "&rpc=http://h":                                 "must be escaped",
		strings.Replace(good, testKey.String(), "0", 1):        "program: key is",
		strings.Replace(good, testKey.String(), none, 1):       "program is zero",
		strings.Replace(good, testAuthority.String(), none, 1): "authority is zero",
		strings.Replace(good, "/r?", "/?", 1):                  "run id is missing",
		good + strings.Repeat("x", maxChainSize):               "want at most",
	} {
		if _, err := ParseChain(text); !errors.Is(err, errLink) || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v\twant %q", text, err, part)
		}
	}
}

// TestPublic: an address that may have somebody's key in it is not shown to everybody.
func TestPublic(t *testing.T) {
	nodes := []string{"https://a.example/key", "https://b.example?api-key=k", "https://me:k@c.example", "https://d.example#k", "https://e.example/", "http://127.0.0.1:8899"}
	if got := Public(nodes); !slices.Equal(got, nodes[4:]) {
		t.Errorf("public are %q", got)
	}
}

// FuzzParseChain reads arbitrary text: nothing but an errLink, or a link that says the same again.
func FuzzParseChain(f *testing.F) {
	f.Add(ChainLink{testKey, "r", testAuthority, []string{"http://h"}}.String())
	f.Add(chainScheme + "://")
	fuzztest.Run(f, func(t *testing.T, text string) {
		l, err := ParseChain(text)
		if err != nil {
			if !errors.Is(err, errLink) {
				t.Fatal(err)
			}
			return
		}
		if again, err := ParseChain(l.String()); err != nil || !reflect.DeepEqual(again, l) {
			t.Fatalf("%q is %s, which is %+v, %v", text, l, again, err)
		}
	})
}
