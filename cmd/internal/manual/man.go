package manual

import (
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"
)

// Man is the command print-man.
type Man struct{}

// Write writes the man page of a program.
func (Man) Write(to io.Writer, line *kong.Context) error {
	root := line.Model.Node
	var b strings.Builder
	summary, rest, _ := strings.Cut(line.Model.Help, "\n\n")
	fmt.Fprintf(&b, ".TH %s 1 \"\" \"Psyche\" \"User Commands\"\n", roff(strings.ToUpper(root.Name)))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", roff(root.Name), roff(strings.TrimSuffix(strings.ToLower(summary[:1])+summary[1:], ".")))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n.I command\n.RI [ flags ]\n", roff(root.Name))
	fmt.Fprintf(&b, ".SH DESCRIPTION\n%s\n", roff(summary))
	if rest != "" {
		fmt.Fprintf(&b, ".PP\n%s\n", roff(rest))
	}
	b.WriteString("Every command has\n.BR \\-\\-help .\n.SH COMMANDS\n")
	commandPages(&b, root)
	_, err := io.WriteString(to, b.String())
	return err
}

// commandPages writes the commands below a node.
func commandPages(b *strings.Builder, node *kong.Node) {
	for _, child := range node.Children {
		switch {
		case child.Hidden || child.Type != kong.CommandNode:
			continue
		case len(child.Children) > 0:
			commandPages(b, child)
			continue
		}
		fmt.Fprintf(b, ".SS %s\n%s\n", roff(child.FullPath()), roff(child.Help))
		for paragraph := range strings.SplitSeq(child.Detail, "\n\n") {
			if paragraph != "" {
				fmt.Fprintf(b, ".PP\n%s\n", roff(paragraph))
			}
		}
		for _, argument := range child.Positional {
			fmt.Fprintf(b, ".TP\n.I %s\n%s\n", roff(argument.Summary()), roff(argument.Help))
		}
		for _, flag := range child.Flags {
			if !flag.Hidden {
				fmt.Fprintf(b, ".TP\n.B %s\n%s\n", roff(strings.TrimSpace(flag.Summary())), roff(flag.Help+variables(flag)))
			}
		}
	}
}

// variables names the environment variables that stand for a flag.
func variables(flag *kong.Flag) string {
	if len(flag.Envs) == 0 {
		return ""
	}
	return " Environment: " + strings.Join(flag.Envs, ", ") + "."
}

// roff writes a text as the man page's formatter wants it: nothing in it is a command.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\(rs`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`, "…", "...").Replace(text)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
