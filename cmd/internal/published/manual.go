package published

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/psyche-go/psyche/cmd/internal/manual"
)

// Manual is the command print-all-help, which prints the help of every command as Markdown.
type Manual struct {
	Markdown bool `help:"Write Markdown (the only format)."`
}

// Write writes the help of all commands. If under names a command, it writes only the help of that
// command and its subcommands.
func (m Manual) Write(to io.Writer, line *kong.Context, under ...string) error {
	if !m.Markdown {
		return errors.New("give --markdown, the only format")
	}
	node := line.Model.Node
	for _, name := range under {
		i := slices.IndexFunc(node.Children, func(child *kong.Node) bool { return child.Name == name })
		if i < 0 {
			return fmt.Errorf("there is no command %s", name)
		}
		node = node.Children[i]
	}
	var pages strings.Builder
	page(&pages, node, 1)
	_, err := io.WriteString(to, pages.String())
	return err
}

// page writes a command and its subcommands.
func page(b *strings.Builder, node *kong.Node, depth int) {
	fmt.Fprintf(b, "%s `%s`\n\n", strings.Repeat("#", min(depth, 6)), node.FullPath())
	for _, text := range []string{node.Help, node.Detail} {
		if text != "" {
			fmt.Fprintf(b, "%s\n\n", text)
		}
	}
	for _, argument := range node.Positional {
		fmt.Fprintf(b, "- `%s`: %s\n", argument.Summary(), argument.Help)
	}
	for i, group := range manual.Groups(node) {
		if group.Title != "" {
			if i > 0 || len(node.Positional) > 0 {
				b.WriteString("\n")
			}
			fmt.Fprintf(b, "%s\n\n", group.Title)
		}
		for _, flag := range group.Flags {
			fmt.Fprintf(b, "- `%s`: %s%s\n", flag.Summary(), flag.Help, remarks(flag))
		}
	}
	if len(node.Positional)+len(node.Flags) > 0 {
		b.WriteString("\n")
	}
	for _, child := range node.Children {
		if !child.Hidden {
			page(b, child, depth+1)
		}
	}
}

// remarks returns facts that a flag's text does not contain.
func remarks(flag *kong.Flag) string {
	var all []string
	if flag.HasDefault && flag.Default != "" && !strings.Contains(flag.Help, "("+flag.Default+")") {
		all = append(all, "default `"+flag.Default+"`")
	}
	if len(flag.Envs) > 0 {
		all = append(all, "environment `"+strings.Join(flag.Envs, "`, `")+"`")
	}
	if len(all) == 0 {
		return ""
	}
	return " (" + strings.Join(all, "; ") + ")"
}
