package invite

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/psyche-go/psyche/base/fuzztest"
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
		link("host.example/friends"):                {Host: "host.example", Port: DefaultPort, RunID: "friends"},
		link("192.0.2.7:1/a%20run%2Fof%20%C3%A9"):   {Host: "192.0.2.7", Port: 1, RunID: "a run/of é"},
		link("[2001:db8::1]:65535/r"):               {Host: "2001:db8::1", Port: 65535, RunID: "r"},
		link("[2001:db8::1]/r"):                     {Host: "2001:db8::1", Port: DefaultPort, RunID: "r"},
		" '" + link("host.example/friends") + "'\n": {Host: "host.example", Port: DefaultPort, RunID: "friends"},
		`"` + link("host.example/friends") + `"`:    {Host: "host.example", Port: DefaultPort, RunID: "friends"},
		// The order of the two is free.
		fmt.Sprintf("psyche://h/r?genesis=%s&key=%s", testHash, testKey): {Host: "h", Port: DefaultPort, RunID: "r"},
	} {
		want.Key, want.Run = testKey, [32]byte([]byte(strings.Repeat("\x0f", 32)))
		if got, err := Parse(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
}

// TestParseNamesThePart wants every error to name what is wrong, and the remedy.
func TestParseNamesThePart(t *testing.T) {
	zeros := strings.Repeat("0", 64)
	for text, part := range map[string]string{
		"":                         "want psyche://HOST:PORT/RUN",
		"https://host.example/r":   `starts with "https://host.example/r"`,
		"host.example:39405":       "want psyche://HOST:PORT/RUN",
		link("/r"):                 `host ""`,
		link("ho st/r"):            `host "ho st" contains ' '`,
		link("0.0.0.0:39405/r"):    "host 0.0.0.0",
		link("fe80::1%eth0/r"):     "address",
		link("[fe80::1%25eth0]/r"): "host",
		link("2001:db8::1/r"):      "or [IPv6]:PORT",
		link("[host]/r"):           "or [IPv6]:PORT",
		link("me@host/r"):          "before an @",
		link("host:0/r"):           "port is 0",
		link("host:65536/r"):       `port is "65536"`,
		link("host:039405/r"):      `port is "039405"`,
		link("host:/r"):            `port is ""`,
		link("host"):               "run id is missing",
		link("host/"):              "run id is missing",
		link("host/a/b"):           `run id "a/b"`,
		link("host/%zz"):           `run id "%zz"`,
		link("host/%61"):           `run id "%61"`,
		link("host/" + strings.Repeat("r", coordinator.MaxRunIDLength+1)): "has 65 bytes, want 1 to 64",
		"psyche://host/r":                                                        "the server's key is missing",
		"psyche://host/r?genesis=" + testHash:                                    "the server's key is missing",
		"psyche://host/r?key=" + testKey.String():                                "a shell cuts it",
		"psyche://host/r?key=0&genesis=" + testHash:                              `key is "0"`,
		"psyche://host/r?key=" + strings.Repeat("z", 45):                         `key is "zzz`,
		link("host/r")[:len(link("host/r"))-1]:                                   "found 63 characters",
		strings.ToUpper(link("host/r")):                                          "starts with",
		link("host/r") + "&key=" + testKey.String():                              "key occurs twice",
		link("host/r") + "&model=x":                                              `unknown part "model=x"`,
		link("host/r") + "&":                                                     `unknown part ""`,
		link("host/r") + "#x":                                                    "found 66 characters",
		strings.Replace(link("host/r"), testHash, zeros, 1):                      "genesis is zero",
		"psyche://host/r?key=" + identity.ID{}.String() + "&genesis=" + testHash: "key is zero",
		link("host/r") + strings.Repeat("x", MaxSize):                            "want at most",
	} {
		_, err := Parse(text)
		if !errors.Is(err, errLink) || !strings.Contains(err.Error(), part) || !strings.Contains(err.Error(), "ask for the whole link again") {
			t.Errorf("%s: %v\twant %q", text, err, part)
		}
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
		if got, err := Parse(text); err != nil || got != want || len(text) > MaxSize {
			t.Fatalf("%s: %+v, %v", text, got, err)
		}
		if strings.ContainsAny(text, "' \t\n\"\\$`") {
			t.Fatalf("%s cannot be typed in quotes", text)
		}
		if got, err := Parse(want.ForShell()); err != nil || got != want {
			t.Fatalf("%s: %+v, %v", want.ForShell(), got, err)
		}
	})
}

// FuzzParse reads arbitrary text: nothing but an errLink, or a link that says the same again.
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
			t.Fatalf("%q is %s, which is %+v, %v", text, l, again, err)
		}
	})
}
