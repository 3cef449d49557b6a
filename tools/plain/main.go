package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// errAbove means that a kind of prose has more hits than its limit.
var errAbove = errors.New("more hits than the limit")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch err := run(ctx, os.Args[1:], os.Stdout); {
	case errors.Is(err, errAbove):
		fmt.Fprintln(os.Stderr, "plain:", err)
		os.Exit(1)
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "plain:", err)
		os.Exit(2)
	}
}

// options are the flags.
type options struct {
	changed string
	commits int
	limits  limits
	kinds   string
	folders limits
	quiet   bool
	paths   []string
}

func run(ctx context.Context, args []string, out io.Writer) error {
	o := options{limits: limits{}, folders: limits{}}
	fl := flag.NewFlagSet("plain", flag.ContinueOnError)
	fl.StringVar(&o.changed, "changed", "", "check only lines and commits added since `BASE`, a commit or a branch")
	fl.IntVar(&o.commits, "commits", 0, "check also the subjects of the newest `N` commits")
	fl.Var(o.limits, "max", "hits per 1,000 lines allowed for a kind of prose, as `KIND=RATE`; repeatable. One hit is always allowed")
	fl.StringVar(&o.kinds, "kinds", "", "check only these `KINDS`, separated by commas: markdown, comment, message, help, page, commit")
	fl.Var(o.folders, "max-folder", "the same for each top-level folder, as `KIND=RATE`; repeatable")
	fl.BoolVar(&o.quiet, "q", false, "print only the table")
	if err := fl.Parse(args); err != nil {
		return err
	}
	o.paths = fl.Args()
	r, err := openRepository(ctx)
	if err != nil {
		return err
	}
	all, only, err := collect(r, o)
	if err != nil {
		return err
	}
	t := check(all, only, o.folders)
	t.print(out, o.quiet)
	return t.compare(o.limits, o.folders)
}

// collect returns the prose to check, and the lines to report hits for. If the lines are nil, all
// count.
func collect(r *repository, o options) ([]*prose, changes, error) {
	var only changes
	if o.changed != "" {
		var err error
		if only, err = r.changed(o.changed); err != nil {
			return nil, nil, err
		}
	}
	paths, err := r.files(o.paths)
	if err != nil {
		return nil, nil, err
	}
	var all []*prose
	for _, path := range paths {
		if only != nil && only[path] == nil {
			continue
		}
		text, err := r.read(path)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, split(path, text)...)
	}
	var newest []string
	switch {
	case o.changed != "":
		newest = []string{o.changed + "..HEAD"}
	case o.commits > 0:
		newest = []string{"-n", strconv.Itoa(o.commits)}
	}
	if newest != nil {
		subjects, err := r.subjects(newest...)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, subjects...)
	}
	if o.kinds != "" {
		kinds := strings.Split(o.kinds, ",")
		all = slices.DeleteFunc(all, func(p *prose) bool { return !slices.Contains(kinds, p.kind) })
	}
	return all, only, nil
}

// split returns the prose of a file.
func split(path, text string) []*prose {
	switch filepath.Ext(path) {
	case ".md":
		return markdown(path, text)
	case ".go":
		return goSource(path, text)
	case ".html":
		return html(path, text)
	default:
		return otherSource(path, text)
	}
}

// hit is one match of a rule. Further matches of the rule in the same sentence are not hits.
type hit struct {
	path     string
	line     int
	rule     string
	sentence string
}

// group is the prose of one kind in a top-level folder. The folder "." has the files that are in no other folder, and
// the folder "" has all prose.
type group struct{ folder, kind string }

func (g group) String() string {
	return strings.TrimPrefix(g.folder+" ", " ") + g.kind
}

// compareGroups orders groups by folder, and then by kind.
func compareGroups(a, b group) int {
	return cmp.Or(strings.Compare(a.folder, b.folder), strings.Compare(a.kind, b.kind))
}

// tally is the result of a check.
type tally struct {
	hits  []hit
	lines map[group]int
	count map[group]int  // hits by group
	rules map[string]int // hits by rule
}

// check searches the prose for hits in the lines only, or in all lines if only is nil. The tally also has the top-level
// folders, for the kinds with a limit for folders.
func check(all []*prose, only changes, folders limits) *tally {
	t := &tally{lines: map[group]int{}, count: map[group]int{}, rules: map[string]int{}}
	for _, p := range all {
		counts := func(number int) bool { return only == nil || p.kind == kindCommit || only.has(p.path, number) }
		groups := []group{{"", p.kind}}
		if _, ok := folders[p.kind]; ok {
			groups = append(groups, group{topFolder(p.path), p.kind})
		}
		seen := 0
		for _, l := range p.lines {
			if l.number != seen && counts(l.number) {
				add(t.lines, groups)
			}
			seen = l.number
		}
		active := rules
		if p.kind == kindCommit {
			active = slices.Concat(rules, subjectRules)
		}
		for _, s := range p.sentences() {
			low := strings.ToLower(s.text)
			for i := range active {
				at := active[i].find(s.text, low)
				if at < 0 || !counts(p.line(s.start+at)) {
					continue
				}
				t.hits = append(t.hits, hit{p.path, p.line(s.start + at), active[i].name, strings.TrimSpace(p.original[s.start : s.start+len(s.text)])})
				add(t.count, groups)
				t.rules[active[i].name]++
			}
		}
	}
	return t
}

// add increments the numbers of the groups.
func add(numbers map[group]int, groups []group) {
	for _, g := range groups {
		numbers[g]++
	}
}

// topFolder returns the first folder of a path in the repository, or "." for a file in no folder.
func topFolder(path string) string {
	folder, _, found := strings.Cut(path, "/")
	if !found {
		return "."
	}
	return folder
}

func rate(hits, lines int) float64 {
	return 1000 * float64(hits) / float64(max(lines, 1))
}

func (t *tally) print(out io.Writer, quiet bool) {
	if !quiet {
		for _, h := range t.hits {
			fmt.Fprintf(out, "%s:%d: [%s] %s\n", h.path, h.line, h.rule, cut(h.sentence, 200))
		}
	}
	for _, g := range slices.SortedFunc(maps.Keys(t.lines), compareGroups) {
		fmt.Fprintf(out, "%-10s %7d lines %6d hits %7.1f per 1,000\n", g, t.lines[g], t.count[g], rate(t.count[g], t.lines[g]))
	}
	names := slices.SortedFunc(maps.Keys(t.rules), func(a, b string) int {
		if t.rules[a] != t.rules[b] {
			return t.rules[b] - t.rules[a]
		}
		return strings.Compare(a, b)
	})
	for _, name := range names {
		fmt.Fprintf(out, "  %-14s %6d\n", name, t.rules[name])
	}
}

func cut(s string, length int) string {
	if len(s) <= length {
		return s
	}
	return strings.ToValidUTF8(s[:length], "")
}

// compare returns errAbove if a kind exceeds its limit in all, or its limit for folders in a top-level folder.
func (t *tally) compare(all, folders limits) error {
	var above []error
	for _, g := range slices.SortedFunc(maps.Keys(t.count), compareGroups) {
		l := all
		if g.folder != "" {
			l = folders
		}
		limit, ok := l[g.kind]
		if got := rate(t.count[g], t.lines[g]); ok && t.count[g] > 1 && got > limit {
			above = append(above, fmt.Errorf("%s: %.1f per 1,000 lines, want at most %g: %w", g, got, limit, errAbove))
		}
	}
	return errors.Join(above...)
}

// limits maps kinds of prose to hits per 1,000 lines. It implements flag.Value.
type limits map[string]float64

func (l limits) String() string { return "" }

func (l limits) Set(s string) error {
	kind, value, _ := strings.Cut(s, "=")
	if !slices.Contains([]string{kindMarkdown, kindComment, kindMessage, kindHelp, kindPage, kindCommit}, kind) {
		return fmt.Errorf("unknown kind %q", kind)
	}
	v, err := strconv.ParseFloat(value, 64)
	if err != nil || !(v >= 0) {
		return fmt.Errorf("%q is not a rate", value)
	}
	l[kind] = v
	return nil
}
