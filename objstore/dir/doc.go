// Package dir keeps objects as files of a folder.
//
// Open opens the folder. The objects are its files and those of the folders below it;
// nothing outside it can be reached, not by links either. A Put writes a file of its own
// and then moves it to its place. Its condition holds against every writer of the same
// process; against other processes only IfAbsent does.
package dir
