package manual

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Man is the command print-man.
type Man struct{}

// File is a file that a program reads or writes by default, with its content.
type File struct{ Path, Holds string }

// Write writes the man page of a program. files are listed in it.
func (Man) Write(to io.Writer, line *kong.Context, files []File) error {
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
	examples(&b, root)
	environment(&b, root)
	b.WriteString(".SH FILES\n")
	for _, file := range files {
		fmt.Fprintf(&b, ".TP\n.I %s\n%s\n", roff(file.Path), roff(file.Holds))
	}
	_, err := io.WriteString(to, b.String())
	return err
}

// commandPages writes the subcommands of a node.
func commandPages(b *strings.Builder, node *kong.Node) {
	leaves(node, func(command *kong.Node) {
		fmt.Fprintf(b, ".SS %s\n%s\n", roff(command.FullPath()), roff(command.Help))
		for paragraph := range strings.SplitSeq(command.Detail, "\n\n") {
			if paragraph != "" {
				fmt.Fprintf(b, ".PP\n%s\n", roff(paragraph))
			}
		}
		for _, argument := range command.Positional {
			fmt.Fprintf(b, ".TP\n.I %s\n%s\n", roff(argument.Summary()), roff(argument.Help))
		}
		for _, group := range Groups(command) {
			if group.Title != "" {
				fmt.Fprintf(b, ".PP\n%s\n", roff(group.Title))
			}
			for _, flag := range group.Flags {
				fmt.Fprintf(b, ".TP\n.B %s\n%s\n", roff(strings.TrimSpace(flag.Summary())), roff(flag.Help+variables(flag)))
			}
		}
	})
}

// leaves calls do for every visible command below a node.
func leaves(node *kong.Node, do func(command *kong.Node)) {
	for _, child := range node.Children {
		switch {
		case child.Hidden || child.Type != kong.CommandNode:
		case len(child.Children) > 0:
			leaves(child, do)
		default:
			do(child)
		}
	}
}

// examples collects the example lines in the help of commands.
func examples(b *strings.Builder, root *kong.Node) {
	b.WriteString(".SH EXAMPLES\n")
	leaves(root, func(command *kong.Node) {
		for line := range strings.Lines(command.Detail) {
			if example, ok := strings.CutPrefix(line, "    "+root.Name+" "); ok {
				fmt.Fprintf(b, ".PP\n.RS\n.nf\n%s %s\n.fi\n.RE\n", roff(root.Name), roff(strings.TrimSpace(example)))
			}
		}
	})
}

// environment lists every environment variable that sets a flag, with the flag's help.
func environment(b *strings.Builder, root *kong.Node) {
	flags := make(map[string]*kong.Flag)
	leaves(root, func(command *kong.Node) {
		for _, flag := range command.Flags {
			for _, name := range flag.Envs {
				if !flag.Hidden && flags[name] == nil {
					flags[name] = flag
				}
			}
		}
	})
	b.WriteString(".SH ENVIRONMENT\n")
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		fmt.Fprintf(b, ".TP\n.B %s\nThe flag \\-\\-%s: %s\n", roff(name), roff(flags[name].Name), roff(flags[name].Help))
	}
}

// variables returns the environment variables that set a flag.
func variables(flag *kong.Flag) string {
	if len(flag.Envs) == 0 {
		return ""
	}
	return " Environment: " + strings.Join(flag.Envs, ", ") + "."
}

// roff escapes a text for the man page's formatter.
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
