package rpc

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/chain/transaction"
)

func TestTransactionErrors(t *testing.T) {
	for text, want := range map[string]string{
		`"BlockhashNotFound"`:                                     "transaction failed: BlockhashNotFound",
		`{"InstructionError":[2,{"Custom":9}]}`:                   "transaction failed: instruction 2: code 9",
		`{"InstructionError":[0,"InvalidArgument"]}`:              "transaction failed: instruction 0: InvalidArgument",
		`{"InstructionError":[0,{"BorshIoError":"x"}]}`:           "transaction failed: instruction 0: BorshIoError",
		`{"InsufficientFundsForRent":{"account_index":1}}`:        "transaction failed: InsufficientFundsForRent",
		`{"DuplicateInstruction":1}`:                              "transaction failed: DuplicateInstruction",
		`{"InstructionError":[1,{"Custom":4294967295}]}`:          "transaction failed: instruction 1: code 4294967295",
		`"` + strings.Repeat("x", 400) + `"`:                      "transaction failed: " + strings.Repeat("x", errorText) + "...",
		`{"` + strings.Repeat("y", 400) + `":{"account_index":1}`: "",
		`{"InstructionError":[1]}`:                                "",
		`{"InstructionError":[1,{"Custom":-1}]}`:                  "",
		`{"a":1,"b":2}`:                                           "",
		`7`:                                                       "",
	} {
		var e TransactionError
		if err := json.Unmarshal([]byte(text), &e); (err != nil) != (want == "") {
			t.Errorf("%s: error %v", text, err)
		} else if err == nil && e.Error() != want {
			t.Errorf("%s: %v, want %s", text, &e, want)
		}
	}
}

func TestProgramData(t *testing.T) {
	ours, other := transaction.PublicKey{1}, transaction.PublicKey{2}
	call := func(program transaction.PublicKey, depth int, inside ...string) []string {
		lines := append([]string{fmt.Sprintf("Program %s invoke [%d]", program, depth)}, inside...)
		return append(lines, fmt.Sprintf("Program %s consumed 5 of 10 compute units", program), fmt.Sprintf("Program %s success", program))
	}
	join := func(parts ...[]string) (all []string) {
		for _, p := range parts {
			all = append(all, p...)
		}
		return all
	}
	for name, test := range map[string]struct {
		logs  []string
		want  string
		cut   bool
		calls string
	}{
		"nothing":              {nil, "", false, ""},
		"ours":                 {call(ours, 1, "Program data: YQ== Yg=="), "ab,", false, "ab,;"},
		"another's":            {call(other, 1, "Program data: YQ=="), "", false, ""},
		"two, another between": {join(call(ours, 1, "Program data: YQ=="), call(other, 1, "Program data: Yg=="), call(ours, 1, "Program data: Yw==")), "a,c,", false, "a,;c,;"},
		"called by another":    {call(other, 1, join([]string{"Program data: YQ=="}, call(ours, 2, "Program data: Yg=="), []string{"Program data: Yw=="})...), "b,", false, ""},
		"another pretends": {call(other, 1, "Program log: Program data: YQ==", "Program log: invoke [2]", "Program log: success",
			fmt.Sprintf("Program log: Program %s invoke [2]", ours), "Program data: YQ=="), "", false, ""},
		"failed":           {[]string{fmt.Sprintf("Program %s invoke [1]", ours), fmt.Sprintf("Program %s failed: custom program error: 0x9", ours), "Program data: YQ=="}, "", false, ";"},
		"cut off":          {append(call(ours, 1, "Program data: YQ=="), "Log truncated"), "", true, ""},
		"silent, then not": {join(call(ours, 1), call(ours, 1, "Program data: YQ==", "Program data: Yg==")), "a,b,", false, ";a,b,;"},
		"no base64":        {call(ours, 1, "Program data: ?"), "", true, ""},
	} {
		data, complete := ProgramData(test.logs, ours)
		got := ""
		for _, d := range data {
			got += string(d) + ","
		}
		if got != test.want || complete == test.cut {
			t.Errorf("%s: %q, complete %v", name, got, complete)
		}
		calls, complete := ProgramCalls(test.logs, ours)
		got = ""
		for _, c := range calls {
			for _, d := range c {
				got += string(d) + ","
			}
			got += ";"
		}
		if want := test.calls; got != want || complete == test.cut {
			t.Errorf("%s: calls %q, complete %v", name, got, complete)
		}
	}
}
