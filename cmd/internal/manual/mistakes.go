package manual

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/psyche-go/psyche/record/invite"
)

// Other is the other program of this product, whose commands users look for in this program.
type Other struct {
	Program  string
	Commands []string
}

// meant lists the flags that users mean by flags of other programs, the best first. Commands suggest only their own flags.
var meant = map[string][]string{
	"addr":          {"--server-addr", "--listen-addr", "--http-addr", "--public-addr"},
	"address":       {"--server-addr", "--listen-addr", "--http-addr", "--public-addr"},
	"batch-size":    {"--total-batch", "--micro-batch", "--micro-batch-size"},
	"cpu":           {"--device cpu"},
	"cuda":          {"--device cuda"},
	"data":          {"--data-path"},
	"dataset":       {"--data-path"},
	"epochs":        {"--steps"},
	"gpu":           {"--device cuda"},
	"gpus":          {"--device cuda"},
	"learning-rate": {"--lr"},
	"listen":        {"--listen-addr", "--server-addr", "--http-addr"},
	"max-steps":     {"--steps"},
	"out":           {"--output", "--save"},
	"output":        {"--save"},
	"output-dir":    {"--output", "--save", "--checkpoint-dir"},
	"port":          {"--server-port", "--http-addr", "--bind-p2p-port", "--listen-addr", "--server-addr"},
}

// maxRight is the maximum number of suggested flags.
const maxRight = 2

// ofRun lists settings that the run fixes for all members, so that commands that take part in a run or host a run have no
// flag for them.
var ofRun = map[string]string{
	"batch-size":    "global_batch_size_start",
	"epochs":        "total_steps",
	"learning-rate": "lr_schedule",
	"lr":            "lr_schedule",
	"max-steps":     "total_steps",
	"steps":         "total_steps",
}

var (
	unknownFlag = regexp.MustCompile(`unknown flag --([\w-]+)`)
	unexpected  = regexp.MustCompile(`unexpected argument (\S+?)(?:,|$)`)
)

// Explain returns the message for a command line that could not be parsed, and the command that the user should try. For
// frequent mistakes, it replaces the parser's guess, which compares only letters.
func Explain(program string, other Other, err error) (message, try string) {
	message, try = err.Error(), hint(program, err)
	if found := unknownFlag.FindStringSubmatch(message); found != nil {
		if right := rightFlag(found[1], err); right != "" {
			message = "unknown flag --" + found[1] + "; " + right
		}
		return message, try
	}
	found := unexpected.FindStringSubmatch(message)
	switch {
	case found == nil:
	case strings.HasPrefix(found[1], invite.Scheme+"://") || strings.HasPrefix(found[1], invite.Scheme+"+"):
		if try != program+" --help" {
			return "this command accepts no invite link; name the run with flags", try
		}
		return "this is an invite link, not a command; psyche-client joins its run", "psyche-client join LINK"
	case try == program+" --help" && slices.Contains(other.Commands, found[1]):
		return fmt.Sprintf("%s is a command of the program %s, not of %s", found[1], other.Program, program), other.Program + " " + found[1] + " --help"
	}
	return message, try
}

// rightFlag names the flags of the command with the meaning of a flag of another program, or the key of the run with this
// meaning. It returns "" if neither is known.
func rightFlag(name string, err error) string {
	wrong, ok := errors.AsType[*kong.ParseError](err)
	if !ok || wrong.Context == nil || wrong.Context.Selected() == nil {
		return ""
	}
	has := map[string]bool{}
	for _, group := range wrong.Context.Selected().AllFlags(true) {
		for _, flag := range group {
			has["--"+flag.Name] = true
		}
	}
	var right []string
	for _, flag := range meant[name] {
		if known, _, _ := strings.Cut(flag, " "); has[known] {
			right = append(right, flag)
		}
	}
	right = right[:min(len(right), maxRight)]
	run, inRun := ofRun[name], has["--run-id"] || has["--micro-batch-size"] // other commands have --micro-batch
	switch {
	case len(right) > 0 && run != "" && inRun:
		return fmt.Sprintf("%s in the run's state.toml sets it for all members; this machine chooses only %s", run, strings.Join(right, " and "))
	case len(right) > 0:
		return "use " + strings.Join(right, " or ")
	case run != "" && (inRun || has["--main-authority"]): // the latter is a flag of hosts
		return run + " in the run's state.toml sets it for all members"
	}
	return ""
}
