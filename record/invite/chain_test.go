package invite

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/fuzztest"
	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/base/identity"
)

var testAuthority = identity.FromSeed([identity.SeedSize]byte{2}).ID()

// TestChainLink checks that a link is parsed as it was written, and may be in quotes.
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
			t.Errorf("%s: got %+v, %v; want nil error and %+v", text, got, err, want)
		}
	}
}

// TestChainLinkErrors checks that an error names the invalid part of a link.
func TestChainLinkErrors(t *testing.T) {
	good := ChainLink{testKey, "r", testAuthority, []string{"http://h"}}.String()
	none := identity.ID{}.String()
	for name, text := range map[string]string{
		"nothing":                "",
		"a link to a host":       link("host/r"),
		"cut":                    good[:len(good)-12],
		"the key of a host":      good + "&key=1",
		"two authorities":        good + "&authority=" + testAuthority.String(),
		"cut by a shell":         strings.Split(good, "&")[0],
		"no authority":           strings.Split(good, "?")[0],
		"four nodes":             good + strings.Repeat("&rpc=http%3A%2F%2Fh", maxNodes),
		"a node by ftp":          good + "&rpc=ftp%3A%2F%2Fh",
		"a node with a password": good + "&rpc=http%3A%2F%2Fa%3Ab%40h",
		"an unescaped node":      good + "&rpc=http://h",
		"no program":             strings.Replace(good, testKey.String(), "0", 1),
		"a zero program":         strings.Replace(good, testKey.String(), none, 1),
		"a zero authority":       strings.Replace(good, testAuthority.String(), none, 1),
		"no run id":              strings.Replace(good, "/r?", "/?", 1),
		"too long":               good + strings.Repeat("x", maxChainSize),
	} {
		_, err := ParseChain(text)
		if !errors.Is(err, errLink) {
			t.Errorf("%s: got %v; want error errLink", text, err)
		}
		golden.Message(t, name, err)
	}
}

// TestPublic checks that Public omits addresses that may contain a user's key.
func TestPublic(t *testing.T) {
	nodes := []string{"https://a.example/key", "https://b.example?api-key=k", "https://me:k@c.example", "https://d.example#k", "https://e.example/", "http://127.0.0.1:8899"}
	if got := Public(nodes); !slices.Equal(got, nodes[4:]) {
		t.Errorf("got public addresses %q", got)
	}
}

// FuzzParseChain checks that arbitrary text gives an errLink or a link that survives formatting and
// parsing.
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
			t.Fatalf("%q became %s, then %+v, %v", text, l, again, err)
		}
	})
}
