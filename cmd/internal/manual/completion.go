package manual

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Completion is the command completion.
type Completion struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// Help returns the text below the command's summary in --help.
func (Completion) Help() string {
	return `A package of this program also installs its completions. Otherwise, add
source <(PROGRAM completion bash) to ~/.bashrc, or source <(PROGRAM completion zsh) to
~/.zshrc after compinit, or run PROGRAM completion fish > ~/.config/fish/completions/PROGRAM.fish`
}

// Write writes the completions of a program.
func (c Completion) Write(to io.Writer, line *kong.Context) error {
	root := line.Model.Node
	write := map[string]func(*kong.Node) string{"bash": bash, "zsh": zsh, "fish": fish}[c.Shell]
	_, err := io.WriteString(to, write(root))
	return err
}

// command is a command with its path.
type command struct {
	path string // such as "server run"; empty for the program
	node *kong.Node
}

// commandsOf returns a node and all its subcommands, parents first.
func commandsOf(node *kong.Node, path string) []command {
	list := []command{{path, node}}
	for _, child := range node.Children {
		if child.Type == kong.CommandNode && !child.Hidden {
			list = append(list, commandsOf(child, strings.TrimSpace(path+" "+child.Name))...)
		}
	}
	return list
}

// children returns the direct subcommands of a command.
func (c command) children() (list []*kong.Node) {
	for _, child := range c.node.Children {
		if child.Type == kong.CommandNode && !child.Hidden {
			list = append(list, child)
		}
	}
	return list
}

// flags returns the flags that a command takes.
func (c command) flags() (list []*kong.Flag) {
	for _, flag := range c.node.Flags {
		if !flag.Hidden {
			list = append(list, flag)
		}
	}
	return list
}

// values returns the possible values of a flag, if they form a short list.
func values(flag *kong.Flag) []string {
	if flag.Enum == "" || strings.ContainsAny(flag.Enum, " \t'\"") {
		return nil
	}
	return slices.DeleteFunc(strings.Split(flag.Enum, ","), func(v string) bool { return v == "" })
}

// bash returns the completion script for bash. Like the script of zsh, it looks up the words typed so
// far in a table of possible next words.
func bash(root *kong.Node) string {
	name := functionName(root)
	var b strings.Builder
	fmt.Fprintf(&b, "# Completions of %[1]s for bash, made by: %[1]s completion bash\n", root.Name)
	fmt.Fprintf(&b, "_%s() {\n  local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} path='' i word words='' values=''\n", name)
	b.WriteString("  COMPREPLY=()\n")
	b.WriteString("  for ((i = 1; i < COMP_CWORD; i++)); do\n    word=${COMP_WORDS[i]}\n    case \"${path:+$path }$word\" in\n")
	for _, c := range commandsOf(root, "")[1:] {
		fmt.Fprintf(&b, "      %s) path=%s ;;\n", quote(c.path), quote(c.path))
	}
	b.WriteString("    esac\n  done\n  case \"$path $before\" in\n")
	for _, c := range commandsOf(root, "") {
		for _, flag := range c.flags() {
			if v := values(flag); v != nil {
				fmt.Fprintf(&b, "    %s) values=%s ;;\n", quote(c.path+" --"+flag.Name), quote(strings.Join(v, " ")))
			}
		}
	}
	b.WriteString("  esac\n  if [ -n \"$values\" ]; then\n    mapfile -t COMPREPLY < <(compgen -W \"$values\" -- \"$current\")\n    return\n  fi\n  case \"$path\" in\n")
	for _, c := range commandsOf(root, "") {
		fmt.Fprintf(&b, "    %s) words=%s ;;\n", quote(c.path), quote(strings.Join(wordsOf(c), " ")))
	}
	b.WriteString("  esac\n  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\")\n" +
		"  if [ ${#COMPREPLY[@]} -eq 0 ]; then mapfile -t COMPREPLY < <(compgen -f -- \"$current\"); fi\n}\n")
	fmt.Fprintf(&b, "complete -o filenames -F _%s %s\n", name, root.Name)
	return b.String()
}

// wordsOf returns the subcommands of a command, and its flags.
func wordsOf(c command) (words []string) {
	for _, child := range c.children() {
		words = append(words, child.Name)
	}
	for _, flag := range c.flags() {
		words = append(words, "--"+flag.Name)
		if negated := negation(flag); negated != "" {
			words = append(words, negated)
		}
	}
	return words
}

// negation returns the flag that negates a switch.
func negation(flag *kong.Flag) string {
	if !flag.IsBool() || flag.Tag == nil || flag.Tag.Negatable == "" {
		return ""
	}
	return "--no-" + flag.Name
}

func zsh(root *kong.Node) string {
	var b strings.Builder
	fmt.Fprintf(&b, "#compdef %[1]s\n# Completions of %[1]s for zsh, made by: %[1]s completion zsh\n", root.Name)
	fmt.Fprintf(&b, "_%s() {\n  local path='' i word\n  local -a choices\n", functionName(root))
	b.WriteString("  for ((i = 2; i < CURRENT; i++)); do\n    word=${words[i]}\n    case \"${path:+$path }$word\" in\n")
	for _, c := range commandsOf(root, "")[1:] {
		fmt.Fprintf(&b, "      (%s) path=%s ;;\n", quote(c.path), quote(c.path))
	}
	b.WriteString("    esac\n  done\n  case \"$path ${words[CURRENT-1]}\" in\n")
	for _, c := range commandsOf(root, "") {
		for _, flag := range c.flags() {
			if v := values(flag); v != nil {
				fmt.Fprintf(&b, "    (%s) compadd -- %s; return ;;\n", quote(c.path+" --"+flag.Name), strings.Join(v, " "))
			}
		}
	}
	b.WriteString("  esac\n  case \"$path\" in\n")
	for _, c := range commandsOf(root, "") {
		var described []string
		for _, child := range c.children() {
			described = append(described, quote(child.Name+":"+child.Help))
		}
		for _, flag := range c.flags() {
			described = append(described, quote("--"+flag.Name+":"+firstSentence(flag.Help)))
			if negated := negation(flag); negated != "" {
				described = append(described, quote(negated+":Turn this off."))
			}
		}
		fmt.Fprintf(&b, "    (%s) choices=(%s) ;;\n", quote(c.path), strings.Join(described, " "))
	}
	fmt.Fprintf(&b, "  esac\n  if [[ ${words[CURRENT]} == -* ]] || [[ ${#choices} -gt 0 && ${choices[1]} != -* ]]; then\n    _describe %s choices\n  else\n    _files\n  fi\n}\n", quote(root.Name))
	fmt.Fprintf(&b, "if [ \"${funcstack[1]}\" = _%[1]s ]; then _%[1]s \"$@\"; else compdef _%[1]s %[2]s; fi\n", functionName(root), root.Name)
	return b.String()
}

// fish returns the completion script for fish. Each entry has a condition on the words typed so far.
func fish(root *kong.Node) string {
	var b strings.Builder
	name := functionName(root)
	fmt.Fprintf(&b, "# Completions of %[1]s for fish, made by: %[1]s completion fish\n", root.Name)
	fmt.Fprintf(&b, "function __%s_at\n  set -l path\n  for word in (commandline -opc)[2..-1]\n    switch \"$path $word\"\n", name)
	for _, c := range commandsOf(root, "")[1:] {
		parent, last, found := cutLast(c.path)
		if !found {
			parent, last = "", c.path
		}
		fmt.Fprintf(&b, "      case %s\n        set path %s\n", quote(parent+" "+last), quote(c.path))
	}
	b.WriteString("    end\n  end\n  test \"$path\" = \"$argv\"\nend\n")
	for _, c := range commandsOf(root, "") {
		at := quote(fmt.Sprintf("__%s_at %s", name, c.path))
		for _, child := range c.children() {
			fmt.Fprintf(&b, "complete -c %s -f -n %s -a %s -d %s\n", root.Name, at, child.Name, quote(child.Help))
		}
		for _, flag := range c.flags() {
			extra := " -r"
			if flag.IsBool() {
				extra = ""
			} else if v := values(flag); v != nil {
				extra = " -x -a " + quote(strings.Join(v, " "))
			}
			fmt.Fprintf(&b, "complete -c %s -n %s -l %s%s -d %s\n", root.Name, at, flag.Name, extra, quote(firstSentence(flag.Help)))
			if negated := negation(flag); negated != "" {
				fmt.Fprintf(&b, "complete -c %s -n %s -l %s -d 'Turn this off.'\n", root.Name, at, strings.TrimPrefix(negated, "--"))
			}
		}
	}
	return b.String()
}

func cutLast(path string) (parent, last string, found bool) {
	i := strings.LastIndexByte(path, ' ')
	if i < 0 {
		return "", path, false
	}
	return path[:i], path[i+1:], true
}

func functionName(root *kong.Node) string { return strings.ReplaceAll(root.Name, "-", "_") }

func firstSentence(text string) string {
	if i := strings.Index(text, ". "); i > 0 {
		return text[:i+1]
	}
	return text
}

// quote quotes a text as one word for any of the shells.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
