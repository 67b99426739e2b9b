# Puts kind's address of the scorer into a profile of deploy/scheduler: for the table and for records.
s#^\( *\)\(scorer\|journal\)Address: .*#\1\2Address: http://10.96.0.70:10270#
