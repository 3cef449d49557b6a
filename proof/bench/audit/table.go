package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/proof/bench/momenta"
	"github.com/psyche-go/psyche/proof/bench/rawlog"
)

// tableCommand prints the results in the logs.
type tableCommand struct {
	Logs string `default:"proof/bench/audit/logs" type:"path" help:"Folder of the logs."`
}

func (c *tableCommand) Run() error {
	rows, err := readRows(c.Logs)
	if err != nil {
		return err
	}
	printTables(os.Stdout, rows)
	return nil
}

func readRows(folder string) ([]row, error) {
	paths, err := filepath.Glob(filepath.Join(folder, "*"+rawlog.Suffix))
	if err != nil || len(paths) == 0 {
		return nil, fmt.Errorf("%s: no logs (%w); make one with: go run ./proof/bench/audit calibrate --name first", folder, errors.Join(err, os.ErrNotExist))
	}
	var rows []row
	for _, path := range paths {
		file, err := rawlog.Open(path)
		if err != nil {
			return nil, err
		}
		lines := bufio.NewScanner(file)
		for number := 1; lines.Scan(); number++ {
			var r row
			if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
				return nil, errors.Join(fmt.Errorf("%s: line %d: %w", path, number, err), file.Close())
			}
			r.log = path
			rows = append(rows, r)
		}
		if err := errors.Join(lines.Err(), file.Close()); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// passes judges a row as audit.Report.Judge does; the log has the four largest errors.
func (r row) passes(l audit.Limits) bool {
	above := 0
	for _, e := range r.Top {
		if e < 0 || e > l.Chunk {
			above++
		}
	}
	return r.Fault == 0 && r.Error >= 0 && r.Error <= l.Error && above <= l.Stray && (len(r.Top) == 0 || r.Top[0] <= l.Worst)
}

func printTables(out io.Writer, rows []row) {
	byKind, kinds := map[string][]row{}, []string(nil)
	for _, r := range rows {
		if byKind[r.Kind] == nil {
			kinds = append(kinds, r.Kind)
		}
		byKind[r.Kind] = append(byKind[r.Kind], r)
	}
	printHonest(out, byKind["honest"])
	printCounted(out, byKind["counted"])
	_, _ = fmt.Fprintf(out, "\n| attack | audits | error, 1 %% to 99 %% | largest error of a chunk, 1 %% | caught, both f32 | both bf16 |\n|---|---|---|---|---|---|\n")
	for _, a := range momenta.Single() {
		if of := byKind[a.Name]; len(of) > 0 {
			_, _ = fmt.Fprintf(out, "| %s | %d | %s to %s | %s | %s | %s |\n", a.Name, len(of),
				short(quantile(of, 0.01, errorOf)), short(quantile(of, 0.99, errorOf)), short(quantile(of, 0.01, worstOf)),
				caught(of, 0), caught(of, 2))
		}
	}
	slices.Sort(kinds)
	printShadows(out, kinds, byKind)
}

// printShadows prints what the shadow attackers chose while they stayed below the limits, at four
// times in the run.
func printShadows(out io.Writer, kinds []string, byKind map[string][]row) {
	_, _ = fmt.Fprintf(out, "\n| cheater without audits | share of the sent coefficients that the cheater chose, at 25, 50, 75, 100 %% of the run | share that an honest trainer sends too | share with the sign opposite to an honest trainer's |\n|---|---|---|---|\n")
	for _, kind := range kinds {
		if !strings.HasPrefix(kind, "steady") && !strings.HasPrefix(kind, "momentum turned round in") {
			continue
		}
		logs := map[string][]row{}
		var of []row
		for _, r := range byKind[kind] {
			if logs[r.log] = append(logs[r.log], r); len(logs[r.log]) > len(of) {
				of = logs[r.log]
			}
		}
		var chose, common, opposite []string
		for quarter := 1; quarter <= 4; quarter++ {
			end := len(of) * quarter / 4
			m := mean(of[max(0, end-10):end])
			chose, common = append(chose, fmt.Sprintf("%.1f", 100*m.Sets)), append(common, fmt.Sprintf("%.0f", 100*m.Signs))
			opposite = append(opposite, fmt.Sprintf("%.0f", 100*m.Cosine))
		}
		_, _ = fmt.Fprintf(out, "| %s (%d steps) | %s %% | %s %% | %s %% |\n", kind, len(of), strings.Join(chose, ", "), strings.Join(common, ", "), strings.Join(opposite, ", "))
	}
}

// printHonest prints the errors of honest trainers by the types of the two trainers.
func printHonest(out io.Writer, all []row) {
	_, _ = fmt.Fprintf(out, "| honest pairs | audits | error: median, 99 %%, largest | error of a chunk: median, 99 %%, largest | equal coefficients, lowest share | equal signs, lowest share | stopped |\n|---|---|---|---|---|---|---|\n")
	for _, class := range []struct {
		name string
		of   func(r row) bool
	}{
		{"both f32", func(r row) bool { return r.bf16() == 0 }},
		{"both bf16", func(r row) bool { return r.bf16() == 2 }},
		{"types differ", func(r row) bool { return r.bf16() == 1 }},
	} {
		var of []row
		for _, r := range all {
			if class.of(r) {
				of = append(of, r)
			}
		}
		if len(of) == 0 {
			continue
		}
		sets, signs := 1.0, 1.0
		for _, r := range of {
			sets, signs = min(sets, r.Sets), min(signs, r.Signs)
		}
		verdict := "no limits"
		if _, ok := of[0].limits(); ok {
			verdict = fmt.Sprintf("%d (at most %.2g %% with 95 %% confidence)", stopped(of), 100*upper(stopped(of), len(of)))
		}
		_, _ = fmt.Fprintf(out, "| %s | %d | %s, %s, %s | %s, %s, %s | %.1f %% | %.1f %% | %s |\n", class.name, len(of),
			short(quantile(of, 0.5, errorOf)), short(quantile(of, 0.99, errorOf)), short(quantile(of, 1, errorOf)),
			short(quantile(of, 0.5, middleOf)), short(quantile(of, 0.99, worstOf)), short(quantile(of, 1, worstOf)),
			100*sets, 100*signs, verdict)
	}
}

// printCounted prints the rows that were only counted, by log.
func printCounted(out io.Writer, of []row) {
	byLog := map[string][]row{}
	for _, r := range of {
		kind := "f32"
		if r.bf16() > 0 {
			kind = "bf16"
		}
		name := fmt.Sprintf("both %s, %s", kind, strings.TrimSuffix(filepath.Base(r.log), rawlog.Suffix))
		byLog[name] = append(byLog[name], r)
	}
	for _, name := range slices.Sorted(maps.Keys(byLog)) {
		of, audits, stopped, sets, signs := byLog[name], 0, 0, 1.0, 1.0
		for _, r := range of {
			audits, stopped = audits+r.Audits, stopped+r.Stopped
			sets, signs = min(sets, r.Sets), min(signs, r.Signs)
		}
		_, _ = fmt.Fprintf(out, "| %s, counted | %d | –, –, %s | –, –, %s | %.1f %% | %.1f %% | %d (at most %.2g %% with 95 %% confidence) |\n", name, audits,
			short(quantile(of, 1, errorOf)), short(quantile(of, 1, worstOf)), 100*sets, 100*signs, stopped, 100*upper(stopped, audits))
	}
}

// bf16 returns how many of the two trainers compute in bf16.
func (r row) bf16() (n int) {
	for _, stack := range []string{r.Trainer, r.Verifier} {
		if strings.Contains(stack, "bf16") {
			n++
		}
	}
	return n
}

// limits returns the limits for the types of the two trainers, if there are any.
func (r row) limits() (l audit.Limits, ok bool) {
	if r.bf16() == 2 {
		return audit.BF16Limits, true
	}
	return audit.F32Limits, r.bf16() == 0
}

func stopped(rows []row) (n int) {
	for _, r := range rows {
		if l, ok := r.limits(); ok && !r.passes(l) {
			n++
		}
	}
	return n
}

// caught formats the number of audits that stopped an attacker, if bf16 of the two trainers compute
// in bf16.
func caught(rows []row, bf16 int) string {
	var of []row
	for _, r := range rows {
		if r.bf16() == bf16 {
			of = append(of, r)
		}
	}
	if len(of) == 0 {
		return "–"
	}
	return fmt.Sprintf("%d of %d", stopped(of), len(of))
}

// upper returns the largest probability of an event with which few or fewer of n events still occur
// in 5 % of cases (Clopper and Pearson). It finds the probability by bisection.
func upper(few, n int) float64 {
	low, high := 0.0, 1.0
	for range 60 {
		p := (low + high) / 2
		sum := 0.0
		for i := range few + 1 {
			choose, _ := math.Lgamma(float64(n + 1))
			a, _ := math.Lgamma(float64(i + 1))
			b, _ := math.Lgamma(float64(n - i + 1))
			sum += math.Exp(choose - a - b + float64(i)*math.Log(p) + float64(n-i)*math.Log1p(-p))
		}
		if sum > 0.05 {
			low = p
		} else {
			high = p
		}
	}
	return high
}

func errorOf(r row) float64  { return r.Error }
func middleOf(r row) float64 { return r.Middle }
func worstOf(r row) float64 {
	if len(r.Top) == 0 {
		return 0
	}
	return r.Top[0]
}

func quantile(rows []row, q float64, of func(r row) float64) float64 {
	values := make([]float64, len(rows))
	for i, r := range rows {
		values[i] = of(r)
	}
	slices.Sort(values)
	return values[min(len(values)-1, int(q*float64(len(values))))]
}

func mean(rows []row) (m row) {
	for _, r := range rows {
		m.Sets += r.Sets / float64(len(rows))
		m.Signs += r.Signs / float64(len(rows))
		m.Cosine += r.Cosine / float64(len(rows))
	}
	return m
}

func short(x float64) string { return fmt.Sprintf("%.2g", x) }
