// Package qrcode encodes a text, such as the invite link of a run, as a QR code (ISO/IEC 18004). It
// renders codes as half-block characters for terminals, and as SVG for web pages.
package qrcode
