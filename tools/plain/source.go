package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strconv"
	"strings"
)

var (
	generated = regexp.MustCompile(`(?m)^// Code generated`)
	directive = regexp.MustCompile(`^(?:go:|nolint|export |#|lint:|eslint|\+build|sys )`)
	helpTag   = regexp.MustCompile(`\b(?:help|placeholder|usage|description):"((?:\\.|[^"\\])*)"`)
)

// messageCalls are the functions whose string arguments a user reads. A call matches by its last name,
// such as Errorf. If other packages use the name too, the call must also match the package.
var messageCalls = map[string]bool{
	"fmt.Errorf": true, "errors.New": true, "usagef": true, "Fprint": true, "Fprintf": true, "Fprintln": true, "panic": true,
	"Info": true, "Warn": true, "Error": true, "Debug": true, "InfoContext": true, "WarnContext": true, "ErrorContext": true, "DebugContext": true,
	"Log": true, "LogContext": true, "LogAttrs": true, "Print": true, "Printf": true, "Println": true, "Fatal": true, "Fatalf": true,
	"Errorf": true, "Warnf": true, "Infof": true, "Debugf": true, "E": true, "V": true, "VV": true, "P": true, "S": true,
}

// goSource returns comments, messages and help texts of a Go file. A file that does not parse has none: the compiler
// reports it.
func goSource(path, text string) []*prose {
	if generated.MatchString(text) {
		return nil
	}
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil
	}
	all := goComments(path, text, files, file)
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if isMessage(n) {
				all = append(all, literals(path, kindMessage, files, n.Args)...)
			}
		case *ast.FuncDecl:
			if n.Name.Name == "Help" && n.Recv != nil && n.Body != nil {
				all = append(all, helpTexts(path, files, n.Body)...)
			}
		case *ast.Field:
			if n.Tag != nil {
				for _, m := range helpTag.FindAllStringSubmatch(n.Tag.Value, -1) {
					all = append(all, paragraphs(path, kindHelp, []line{{files.Position(n.Tag.Pos()).Line, m[1]}})...)
				}
			}
		}
		return true
	})
	return all
}

// goComments returns the comments of a file. A comment after code is a separate paragraph, and so
// is each run of whole-line comments.
func goComments(path, text string, files *token.FileSet, file *ast.File) []*prose {
	var all []*prose
	source := strings.Split(text, "\n")
	for _, group := range file.Comments {
		var lines []line
		for _, c := range group.List {
			at := files.Position(c.Pos())
			if body, ok := strings.CutPrefix(c.Text, "//"); ok {
				if directive.MatchString(body) {
					continue
				}
				if strings.HasPrefix(body, "\t") || strings.HasPrefix(body, "    ") {
					body = "" // code
				}
				if strings.TrimSpace(source[at.Line-1][:at.Column-1]) != "" {
					lines = append(lines, line{at.Line, ""}, line{at.Line, body}, line{at.Line, ""})
					continue
				}
				lines = append(lines, line{at.Line, body})
				continue
			}
			for i, l := range strings.Split(c.Text, "\n") {
				lines = append(lines, line{at.Line + i, strings.Trim(l, " \t*/")})
			}
		}
		all = append(all, paragraphs(path, kindComment, lines)...)
	}
	return all
}

func isMessage(call *ast.CallExpr) bool {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return messageCalls[f.Name]
	case *ast.SelectorExpr:
		if x, ok := f.X.(*ast.Ident); ok && messageCalls[x.Name+"."+f.Sel.Name] {
			return true
		}
		return messageCalls[f.Sel.Name]
	}
	return false
}

// literals returns the literal strings among the first three arguments. A context, a level or a writer
// may precede the text. Constants that are joined by + are one paragraph.
func literals(path, kind string, files *token.FileSet, args []ast.Expr) []*prose {
	for _, arg := range args[:min(len(args), 3)] {
		var lines []line
		ast.Inspect(arg, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr, *ast.FuncLit, *ast.CompositeLit, *ast.IndexExpr:
				return false
			case *ast.BasicLit:
				if n.Kind == token.STRING {
					value, err := strconv.Unquote(n.Value)
					if err == nil {
						lines = append(lines, line{files.Position(n.Pos()).Line, strings.ReplaceAll(value, "\n", " ")})
					}
				}
			}
			return true
		})
		if len(lines) > 0 {
			return paragraphs(path, kind, lines)
		}
	}
	return nil
}

func helpTexts(path string, files *token.FileSet, body *ast.BlockStmt) []*prose {
	var all []*prose
	ast.Inspect(body, func(n ast.Node) bool {
		lit, ok := n.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			return true
		}
		value, err := strconv.Unquote(lit.Value)
		if err != nil {
			return true
		}
		var lines []line
		for i, l := range strings.Split(value, "\n") {
			if strings.HasPrefix(l, "\t") || strings.HasPrefix(l, "    ") {
				l = "" // an example
			}
			lines = append(lines, line{files.Position(lit.Pos()).Line + i, l})
		}
		all = append(all, paragraphs(path, kindHelp, lines)...)
		return true
	})
	return all
}

var (
	otherToken = regexp.MustCompile("\"(?:\\\\.|[^\"\\\\\n])*\"|'(?:\\\\.|[^'\\\\\n])*'|`[^`]*`|//[^\n]*|(?s:/\\*.*?\\*/)")
	words      = regexp.MustCompile(`\p{L}{2,}[ ,]+\p{L}{2,}`)
	inserted   = regexp.MustCompile(`\$\{[^}]*\}`)
)

// otherSource returns the comments of a file in C, C++ or JavaScript, and the strings of JavaScript
// that contain two words or more.
func otherSource(path, text string) []*prose {
	if generated.MatchString(text) {
		return nil
	}
	var all []*prose
	var block []line
	last := -2
	number, counted := 1, 0
	for _, m := range otherToken.FindAllStringIndex(text, -1) {
		number += strings.Count(text[counted:m[0]], "\n")
		counted = m[0]
		tok := text[m[0]:m[1]]
		switch {
		case strings.HasPrefix(tok, "//"):
			if directive.MatchString(tok[2:]) {
				continue
			}
			trailing := strings.TrimSpace(text[strings.LastIndex(text[:m[0]], "\n")+1:m[0]]) != ""
			if number != last+1 || trailing {
				all, block = append(all, paragraphs(path, kindComment, block)...), nil
			}
			block = append(block, line{number, tok[2:]})
			if last = number; trailing {
				last = -2
			}
		case strings.HasPrefix(tok, "/*"):
			var lines []line
			for i, l := range strings.Split(tok, "\n") {
				lines = append(lines, line{number + i, strings.Trim(l, " \t*/")})
			}
			all = append(all, paragraphs(path, kindComment, lines)...)
		case strings.HasSuffix(path, ".js") && words.MatchString(tok):
			value := inserted.ReplaceAllStringFunc(tok[1:len(tok)-1], func(s string) string { return strings.Repeat("x", len(s)) })
			all = append(all, paragraphs(path, kindPage, []line{{number, strings.ReplaceAll(value, "\n", " ")}})...)
		}
	}
	return append(all, paragraphs(path, kindComment, block)...)
}

var (
	htmlHidden = regexp.MustCompile(`(?s)<(script|style)\b.*?</(?:script|style)>|<!--.*?-->`)
	htmlTag    = regexp.MustCompile(`(?s)<[^>]*>|\{\{.*?\}\}`)
)

// html returns the text of a page without its tags.
func html(path, text string) []*prose {
	blank := func(s string) string { return strings.Repeat("\n", strings.Count(s, "\n")+1) }
	text = htmlHidden.ReplaceAllStringFunc(text, func(s string) string { return strings.Repeat("\n", strings.Count(s, "\n")) })
	var lines []line
	for i, l := range strings.Split(text, "\n") {
		for _, part := range strings.Split(htmlTag.ReplaceAllStringFunc(l, blank), "\n") {
			lines = append(lines, line{i + 1, part}, line{i + 1, ""})
		}
	}
	return paragraphs(path, kindPage, lines)
}
