# Puts kind's addresses into a profile of deploy/scheduler: the scorer's, and the same for records.
s#^\( *\)scorerAddress: .*#\1scorerAddress: http://10.96.0.70:10270\
\1journalAddress: http://10.96.0.70:10270\
\1journalTokenFile: /etc/kubernetes/pilothouse/token#
