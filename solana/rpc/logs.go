package rpc

import (
	"encoding/base64"
	"strings"

	"github.com/psyche-go/psyche/solana/transaction"
)

// maxLogDepth bounds the calls of programs by programs that ProgramData follows.
const maxLogDepth = 64

// ProgramData returns what a program wrote with sol_log_data in a transaction, in order, one
// entry for each call with its slices joined. What other programs wrote in the same transaction
// is left out; so is everything when the logs were cut off, and then complete is false.
func ProgramData(logs []string, program transaction.PublicKey) (data [][]byte, complete bool) {
	var running []string // the programs that called each other
	name := program.String()
	complete = true
	for _, line := range logs {
		rest, ofProgram := strings.CutPrefix(line, "Program ")
		switch {
		case line == "Log truncated":
			return nil, false
		case !ofProgram:
			continue
		}
		if encoded, ok := strings.CutPrefix(rest, "data: "); ok {
			if len(running) > 0 && running[len(running)-1] == name {
				entry, ok := logged(encoded)
				if !ok {
					return nil, false
				}
				data = append(data, entry)
			}
			continue
		}
		id, what, _ := strings.Cut(rest, " ")
		switch {
		case strings.HasSuffix(id, ":"): // "Program log: " is a program's own text, whatever it says
		case strings.HasPrefix(what, "invoke ["):
			if len(running) == maxLogDepth {
				return nil, false
			}
			running = append(running, id)
		case (what == "success" || strings.HasPrefix(what, "failed: ")) && len(running) > 0 && running[len(running)-1] == id:
			running = running[:len(running)-1]
		}
	}
	return data, complete
}

// logged decodes the slices of one call.
func logged(encoded string) ([]byte, bool) {
	var entry []byte
	for part := range strings.FieldsSeq(encoded) {
		raw, err := base64.StdEncoding.DecodeString(part)
		if err != nil {
			return nil, false
		}
		entry = append(entry, raw...)
	}
	return entry, true
}
