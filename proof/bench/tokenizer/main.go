//go:build unix

// Command tokenizer measures the speed at which this repository's tokenizer encodes a text, on one
// thread, in bytes per second of CPU time. run.sh compares it with the reference implementations.
package main

import (
	"crypto/sha256"
	"encoding/binary"
	"flag"
	"fmt"
	"log"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/psyche-go/psyche/files/tokenizer"
)

func main() {
	file := flag.String("tokenizer", "", "path of a tokenizer.json")
	text := flag.String("text", "", "path of the text, which is split into documents of about 16 KiB")
	rounds := flag.Int("rounds", 3, "number of repetitions; the fastest counts")
	flag.Parse()
	t, err := tokenizer.Load(*file)
	if err != nil {
		log.Fatal(err)
	}
	raw, err := os.ReadFile(*text)
	if err != nil {
		log.Fatal(err)
	}
	documents := cut(raw)
	best := time.Duration(0)
	var ids []int32
	for range *rounds {
		ids = ids[:0]
		started := cpuTime()
		for _, document := range documents {
			if ids, err = t.AppendEncode(ids, document); err != nil {
				log.Fatal(err)
			}
		}
		if took := cpuTime() - started; best == 0 || took < best {
			best = took
		}
	}
	hash := sha256.New()
	if err := binary.Write(hash, binary.LittleEndian, ids); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("go %.2f MB/s %d ids %x\n", float64(len(raw))/1e6/best.Seconds(), len(ids), hash.Sum(nil)[:8])
}

// cpuTime returns the CPU time of the process, including the garbage collector. Unlike elapsed
// time, it is meaningful on a busy machine.
func cpuTime() time.Duration {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		log.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// cut splits a text at the first line end after every 16 KiB.
func cut(raw []byte) (documents [][]byte) {
	for start := 0; start < len(raw); {
		end := min(start+16<<10, len(raw))
		for end < len(raw) && raw[end-1] != '\n' {
			end++
		}
		documents = append(documents, raw[start:end])
		start = end
	}
	return documents
}
