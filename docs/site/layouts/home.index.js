{{- $sections := slice -}}
{{- range site.RegularPages | append site.Home -}}
{{- $page := . -}}
{{- $title := partial "title.html" . -}}
{{- range $i, $part := split (replaceRE `<h3 ` `<h2 ` .Content) "<h2 " -}}
{{- $id := "" -}}
{{- $heading := $title -}}
{{- $text := $part -}}
{{- if gt $i 0 -}}
{{- with findRESubmatch `^id="([^"]+)"[^>]*>` $part 1 }}{{ $id = index . 0 1 }}{{ end -}}
{{- $text = index (split $part "</h2>") 0 -}}
{{- $heading = replaceRE `^[^>]*>` "" (index (split $text "</h3>") 0) | plainify | htmlUnescape | strings.TrimSuffix "#" | strings.TrimSpace -}}
{{- $text = replaceRE `(?s)^.*?</h[23]>` "" $part -}}
{{- end -}}
{{- $sections = $sections | append (dict "page" $title "href" (strings.TrimPrefix "/" $page.RelPermalink | strings.TrimPrefix "./") "id" $id "heading" $heading "text" (replaceRE `\s+` " " (plainify $text | htmlUnescape))) -}}
{{- end -}}
{{- end -}}
window.bookSections = {{ $sections | jsonify }};
