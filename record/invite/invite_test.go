package invite

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/psyche-go/psyche/base/fuzztest"
	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
)

var (
	testKey  = identity.FromSeed([identity.SeedSize]byte{1}).ID()
	testHash = strings.Repeat("0f", 32)
)

func link(place string) string {
	return fmt.Sprintf("psyche://%s?key=%s&genesis=%s", place, testKey, testHash)
}

func TestParse(t *testing.T) {
	for text, want := range map[string]Link{
		link("host.example:39405/friends"):          {Host: "host.example", Port: 39405, RunID: "friends"},
		link("host.example/friends"):                {Host: "host.example", Port: defaultPort, RunID: "friends"},
		link("192.0.2.7:1/a%20run%2Fof%20%C3%A9"):   {Host: "192.0.2.7", Port: 1, RunID: "a run/of é"},
		link("[2001:db8::1]:65535/r"):               {Host: "2001:db8::1", Port: 65535, RunID: "r"},
		link("[2001:db8::1]/r"):                     {Host: "2001:db8::1", Port: defaultPort, RunID: "r"},
		" '" + link("host.example/friends") + "'\n": {Host: "host.example", Port: defaultPort, RunID: "friends"},
		`"` + link("host.example/friends") + `"`:    {Host: "host.example", Port: defaultPort, RunID: "friends"},
		// The two parameters may have any order.
		fmt.Sprintf("psyche://h/r?genesis=%s&key=%s", testHash, testKey): {Host: "h", Port: defaultPort, RunID: "r"},
	} {
		want.Key, want.Run = testKey, [32]byte([]byte(strings.Repeat("\x0f", 32)))
		if got, err := Parse(text); err != nil || got != want {
			t.Errorf("%s: got %+v, %v; want nil error and %+v", text, got, err, want)
		}
	}
}

// TestParseNamesThePart checks that every error names the invalid part and a remedy.
func TestParseNamesThePart(t *testing.T) {
	zeros := strings.Repeat("0", 64)
	for name, text := range map[string]string{
		"nothing":                         "",
		"https":                           "https://host.example/r",
		"no scheme":                       "host.example:39405",
		"no host":                         link("/r"),
		"a space":                         link("ho st/r"),
		"no address to dial":              link("0.0.0.0:39405/r"),
		"a bare IPv6 address with a zone": link("fe80::1%eth0/r"),
		"an IPv6 address with a zone":     link("[fe80::1%25eth0]/r"),
		"a bare IPv6 address":             link("2001:db8::1/r"),
		"a name in brackets":              link("[host]/r"),
		"a user":                          link("me@host/r"),
		"port 0":                          link("host:0/r"),
		"port too large":                  link("host:65536/r"),
		"port with a leading zero":        link("host:039405/r"),
		"no port":                         link("host:/r"),
		"no run":                          link("host"),
		"an empty run id":                 link("host/"),
		"two run ids":                     link("host/a/b"),
		"a bad escape":                    link("host/%zz"),
		"a needless escape":               link("host/%61"),
		"a long run id":                   link("host/" + strings.Repeat("r", coordinator.MaxRunIDLength+1)),
		"no query":                        "psyche://host/r",
		"no key":                          "psyche://host/r?genesis=" + testHash,
		"no genesis":                      "psyche://host/r?key=" + testKey.String(),
		"a bad key":                       "psyche://host/r?key=0&genesis=" + testHash,
		"a long key":                      "psyche://host/r?key=" + strings.Repeat("z", 45),
		"cut":                             link("host/r")[:len(link("host/r"))-1],
		"in upper case":                   strings.ToUpper(link("host/r")),
		"two keys":                        link("host/r") + "&key=" + testKey.String(),
		"an unknown part":                 link("host/r") + "&model=x",
		"an empty part":                   link("host/r") + "&",
		"a fragment":                      link("host/r") + "#x",
		"a zero genesis":                  strings.Replace(link("host/r"), testHash, zeros, 1),
		"a zero key":                      "psyche://host/r?key=" + identity.ID{}.String() + "&genesis=" + testHash,
		"too long":                        link("host/r") + strings.Repeat("x", maxSize),
	} {
		_, err := Parse(text)
		if !errors.Is(err, errLink) {
			t.Errorf("%s: got %v; want error errLink", text, err)
		}
		golden.Message(t, name, err)
	}
}

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := Link{
			Host: rapid.SampledFrom([]string{"host.example", "192.0.2.7", "2001:db8::1", "h", strings.Repeat("a", maxHost)}).Draw(t, "host"),
			Port: rapid.Uint16Min(1).Draw(t, "port"), RunID: rapid.StringN(1, 16, coordinator.MaxRunIDLength).Draw(t, "run"),
			Key: identity.FromSeed([32]byte{rapid.Byte().Draw(t, "key")}).ID(), Run: [32]byte{1, rapid.Byte().Draw(t, "hash")},
		}
		text := want.String()
		if got, err := Parse(text); err != nil || got != want || len(text) > maxSize {
			t.Fatalf("%s: got %+v, %v; want nil error and %+v and len(text) <= maxSize", text, got, err, want)
		}
		if strings.ContainsAny(text, "' \t\n\"\\$`") {
			t.Fatalf("%s cannot be typed in quotes", text)
		}
		if got, err := Parse(want.ForShell()); err != nil || got != want {
			t.Fatalf("%s: got %+v, %v; want nil error and %+v", want.ForShell(), got, err, want)
		}
	})
}

// FuzzParse checks that arbitrary text gives an errLink or a link that survives formatting and
// parsing.
func FuzzParse(f *testing.F) {
	f.Add(link("host.example:39405/friends"))
	f.Add(link("[2001:db8::1]:1/a%20run"))
	f.Add("psyche://")
	fuzztest.Run(f, func(t *testing.T, text string) {
		l, err := Parse(text)
		if err != nil {
			if !errors.Is(err, errLink) {
				t.Fatal(err)
			}
			return
		}
		if again, err := Parse(l.String()); err != nil || again != l {
			t.Fatalf("%q became %s, then %+v, %v", text, l, again, err)
		}
	})
}
