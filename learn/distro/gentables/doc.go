// Command gentables writes the constants of the cosine transforms, correctly rounded to
// single precision from 300-bit arithmetic, as Go source on standard output.
package main
