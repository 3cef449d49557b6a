package onchain_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/cmd/internal/onchain"
)

// TestNodes wants nodes under all names of flags and variables, each with its WebSocket.
func TestNodes(t *testing.T) {
	for line, want := range map[string]string{
		"--rpc http://a": "http://a ws://a",
		"--rpc http://a,http://b --ws-rpc ws://c,ws://d":            "http://a ws://c http://b ws://d",
		"--rpc http://a RPC_2=https://b":                            "http://a ws://a https://b wss://b",
		"RPC=http://a WS_RPC=ws://x RPC_3=http://b WS_RPC_3=ws://c": "http://a ws://x http://b ws://c",
		"--rpc http://a --rpc-2 http://b RPC_2=http://c":            "http://a ws://a http://b ws://b",
		"RPC=http://a RPC_2=b":                                      "", // an error
		"RPC=http://a WS_RPC_2=ws://b":                              "",
		"RPC_2=http://b":                                            "",
		"RPC=http://a,http://b,http://c RPC_2=http://d":             "",
		"--rpc http://a,http://b --ws-rpc ws://c":                   "",
	} {
		t.Run(line, func(t *testing.T) {
			var flags onchain.Flags
			var args []string
			for word := range strings.FieldsSeq(line) {
				if name, value, set := strings.Cut(word, "="); set {
					t.Setenv(name, value)
				} else {
					args = append(args, word)
				}
			}
			parser, err := kong.New(&flags)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := parser.Parse(args); err != nil {
				t.Fatal(err)
			}
			o, err := flags.Options(identity.Key{}, nil)
			got := ""
			for _, address := range o.Endpoints {
				got += address.HTTP + " " + address.WS + " "
			}
			if want == "" {
				if !errors.Is(err, onchain.ErrFlags) {
					t.Errorf("error %v, want ErrFlags", err)
				}
				golden.Message(t, line, err)
			} else if err != nil || strings.TrimSpace(got) != want {
				t.Errorf("%q, %v; want %q", got, err, want)
			}
		})
	}
}
