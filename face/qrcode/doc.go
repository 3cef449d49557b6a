// Package qrcode shows a text, such as the link to a run, as a QR code (ISO/IEC 18004) that a camera
// reads: for terminals with characters of half a line's height, for pages as SVG.
package qrcode
