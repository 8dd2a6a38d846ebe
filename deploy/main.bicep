// Everything that a Function App with Async Caller needs, in one resource group. README.md says how to deploy it.
// `go test ./handler` compares it with the code, as text: handler/deploy_test.go expects its layout.

@description('Begins the names of the resources: letters, digits and hyphens, a letter or digit first.')
@minLength(2)
@maxLength(18)
param name string = 'async-caller'

@description('Region of the resources. README.md says how to list the regions that have the plan.')
param location string = resourceGroup().location

@description('The environment of azd, for its tag; empty without azd.')
param environmentName string = ''

@description('Hosting plan of the app.')
@allowed(['FlexConsumption', 'ElasticPremium'])
param plan string = 'FlexConsumption'

@description('Memory of an instance on Flex Consumption. docs/performance.md says for which messages 512 is enough.')
@allowed([512, 2048, 4096])
param instanceMemoryMB int = 2048

@description('Most instances; docs/performance.md says of what. Flex Consumption accepts 40 and more, Elastic Premium in some regions only 20.')
@minValue(1)
@maxValue(1000)
param maximumInstanceCount int = plan == 'FlexConsumption' ? 40 : 20

@description('Size of an instance on Elastic Premium.')
@allowed(['EP1', 'EP2', 'EP3'])
param premiumSize string = 'EP1'

@description('Spreads the instances over availability zones. Not every region has them for each plan: README.md.')
param zoneRedundant bool = false

@description('Redundancy of the storage account. Standard_ZRS needs a region with availability zones.')
@allowed(['Standard_LRS', 'Standard_ZRS', 'Standard_GRS', 'Standard_GZRS'])
param storageSku string = 'Standard_ZRS'

@description('Locks the storage account, with the calls on its queues, against deletion.')
param deleteLock bool = false

@description('App settings by name: the settings of Async Caller, secrets of targets.json as Key Vault references.')
param settings { *: string } = {}

@description('Queues of routes.json, as `async-caller routes sync` prints them; each gets a poison queue.')
param routedQueues string[] = []

@description('Object id of who sends, operates and deploys; empty: nobody gets a role here.')
param operatorPrincipalId string = deployer().objectId

@description('Kind of operatorPrincipalId. A pipeline has no user principal name.')
@allowed(['User', 'Group', 'ServicePrincipal'])
param operatorPrincipalType string = operatorPrincipalId == deployer().objectId && empty(deployer().userPrincipalName) ? 'ServicePrincipal' : 'User'

@description('Object id of a group that may look and change nothing; empty: none.')
param viewerGroupId string = ''

@description('Receives the alerts; empty: no action group is made.')
param alertEmail string = ''

@description('Ids of further action groups that receive the alerts; empty ones are left out.')
param actionGroupIds string[] = []

@description('Address range of a virtual network to make for the calls, in IPv4, /25 or larger; empty: none is made.')
param virtualNetworkPrefix string = ''

@description('Id of an existing subnet for the calls, delegated to Microsoft.App/environments (Flex Consumption) or Microsoft.Web/serverFarms.')
param subnetId string = ''

@description('Id of an existing subnet for the private endpoints, with subnetId.')
param endpointSubnetId string = ''

@description('Ids of private DNS zones by what they are for; empty: none.')
@sealed()
type zoneIds = {
  @description('Of the endpoint for blobs.')
  blob: string?
  @description('Of the endpoint for queues.')
  queue: string?
  @description('Of the endpoint for tables.')
  table: string?
  @description('Of the endpoint of the app.')
  sites: string?
}

@description('Existing private DNS zones in which the private endpoints are registered.')
param privateDnsZoneIds zoneIds = {}

@description('Most GB of log a day. At the cap the workspace takes no more log until the next day, so the alerts are blind. -1: no cap.')
@minValue(-1)
param dailyQuotaGb int = -1

@description('Closes the storage account except for private endpoints in the network. Without a default: it would open a closed account.')
param privateStorage bool

@description('Closes the app except for a private endpoint in the network.')
param privateApp bool = false

@description('The plan is Flex Consumption, otherwise Elastic Premium.')
var flex = plan == 'FlexConsumption'

@description('Ends the names of the resources.')
var token = uniqueString(resourceGroup().id, name)

@description('Places in name of characters that Azure refuses in names of resources.')
var refusedCharacters = filter(
  range(0, length(name)),
  i => !contains('abcdefghijklmnopqrstuvwxyz0123456789-', toLower(substring(name, i, 1)))
)

@description('Name of the app, and of all resources of which there is one.')
var resourceName = startsWith(name, '-') || !empty(refusedCharacters)
  ? fail('name may have letters, digits and hyphens, and begins with a letter or digit')
  : '${name}-${token}'

@description('Tags of the resources.')
var tags = empty(environmentName) ? {} : { 'azd-env-name': environmentName }

@description('Container for the package of the app.')
var packageContainer = 'packages'

@description('Name of the package in its container, on Elastic Premium.')
var packageName = 'async-caller.zip'

@description('Most instances, as the plan accepts them.')
var mostInstances = flex && maximumInstanceCount < 40
  ? fail('maximumInstanceCount must be 40 or more on Flex Consumption')
  : maximumInstanceCount

@description('Most GB of log a day, as the workspace accepts it.')
var logQuotaGb = dailyQuotaGb == 0
  ? fail('dailyQuotaGb must be 1 or more, or -1 for no cap')
  : dailyQuotaGb

@description('Instances that are always on, on Elastic Premium: one in each of three zones if it is zone redundant.')
var premiumInstances = flex || !zoneRedundant
  ? 1
  : maximumInstanceCount < 3
      ? fail('zoneRedundant on Elastic Premium needs a maximumInstanceCount of 3 or more')
      : 3

@description('The template makes the virtual network.')
var ownNetwork = !empty(virtualNetworkPrefix) && !empty('${subnetId}${endpointSubnetId}')
  ? fail('give either virtualNetworkPrefix, or subnetId and endpointSubnetId')
  : !empty(endpointSubnetId) && !privateStorage && !privateApp
      ? fail('endpointSubnetId has no effect without privateStorage or privateApp')
      : !empty(virtualNetworkPrefix)

@description('Address ranges of the subnets app and endpoints. The rest of the network is free.')
var subnetPrefixes = !ownNetwork
  ? ['', '']
  : !contains(virtualNetworkPrefix, '.')
      ? fail('virtualNetworkPrefix must be a range of IPv4, such as 10.20.0.0/24')
      : parseCidr(virtualNetworkPrefix).cidr > 25
          ? fail('virtualNetworkPrefix must be /25 or larger, for two subnets of /26')
          : '${parseCidr(virtualNetworkPrefix).network}/${parseCidr(virtualNetworkPrefix).cidr}' != virtualNetworkPrefix
              ? fail('virtualNetworkPrefix must begin with the first address of its range, such as 10.20.0.0/24')
              : [cidrSubnet(virtualNetworkPrefix, 26, 0), cidrSubnet(virtualNetworkPrefix, 26, 1)]

@description('Subnet through which the calls leave; empty: none.')
var callSubnetId = ownNetwork
  ? appSubnet.id
  : flex && contains(substring(subnetId, lastIndexOf(subnetId, '/') + 1), '_')
      ? fail('subnetId: Flex Consumption refuses a subnet with an underscore in its name')
      : subnetId

@description('The calls leave through a virtual network.')
var inNetwork = ownNetwork || !empty(subnetId)

@description('There is a subnet for private endpoints, and the app is in its network.')
var canHaveEndpoints = ownNetwork || (!empty(subnetId) && !empty(endpointSubnetId))

@description('Only the private endpoints accept connections to the storage account.')
var closed = privateStorage && !canHaveEndpoints
  ? fail('privateStorage needs virtualNetworkPrefix, or subnetId and endpointSubnetId')
  : !privateStorage && !empty(join(map(storageServices, service => service.zoneId), ''))
      ? fail('privateDnsZoneIds has no effect for blob, queue and table without privateStorage')
      : privateStorage

@description('Only the private endpoint accepts connections to the app.')
var appClosed = privateApp && !canHaveEndpoints
  ? fail('privateApp needs virtualNetworkPrefix, or subnetId and endpointSubnetId')
  : !privateApp && !empty(sitesZoneId)
      ? fail('privateDnsZoneIds has no effect for sites without privateApp')
      : privateApp

@description('Subnet of the private endpoints.')
var endpointsId = ownNetwork ? endpointSubnet.id : endpointSubnetId

// Azure refuses a network that is linked to two zones of one name, and a network of others may be linked to theirs. So
// a zone is made only in the network of the template, and only if none is given.
@description('Services of the storage account that the app uses, and their given zones.')
var storageServices = [
  { name: 'blob', zoneId: privateDnsZoneIds.?blob ?? '' }
  { name: 'queue', zoneId: privateDnsZoneIds.?queue ?? '' }
  { name: 'table', zoneId: privateDnsZoneIds.?table ?? '' }
]

@description('Given zone of the app.')
var sitesZoneId = privateDnsZoneIds.?sites ?? ''

@description('The queues of functions/; each has a poison queue.')
var queues = [
  'async-caller'
  'async-caller-1'
  'async-caller-2'
  'async-caller-3'
  'async-caller-4'
  'async-caller-5'
  'async-caller-6'
  'async-caller-7'
  'async-caller-8'
  'async-caller-9'
  'async-caller-10'
]

@description('Names in routedQueues with characters that no queue has, or in upper case.')
var oddQueues = filter(
  routedQueues,
  queueName => !empty(filter(range(0, length(queueName)), i => !contains('abcdefghijklmnopqrstuvwxyz0123456789-', substring(queueName, i, 1))))
)

@description('Names in routedQueues that routes.json cannot have for another reason: docs/routes.md.')
var refusedQueues = filter(
  routedQueues,
  queueName => length(queueName) < 3 || length(queueName) > 56 || startsWith(queueName, '-') || endsWith(queueName, '-') || contains(queueName, '--') || endsWith(queueName, '-poison') || contains(queues, queueName)
)

@description('All queues. A queue of a route may be named twice.')
var allQueues = !empty(concat(oddQueues, refusedQueues))
  ? fail('routedQueues has a name that routes.json cannot have: docs/routes.md has the rule')
  : union(queues, routedQueues)

resource storage 'Microsoft.Storage/storageAccounts@2026-04-01' = {
  name: 'ac${token}'
  location: location
  tags: tags
  kind: 'StorageV2'
  sku: {
    name: storageSku
  }
  properties: {
    allowSharedKeyAccess: false
    defaultToOAuthAuthentication: true
    allowBlobPublicAccess: false
    minimumTlsVersion: 'TLS1_2'
    supportsHttpsTrafficOnly: true
    publicNetworkAccess: closed ? 'Disabled' : 'Enabled'
  }
}

resource lock 'Microsoft.Authorization/locks@2020-05-01' = if (deleteLock) {
  scope: storage
  name: 'calls'
  properties: {
    level: 'CanNotDelete'
    notes: 'The queues have calls that are not delivered yet.'
  }
}

resource blobs 'Microsoft.Storage/storageAccounts/blobServices@2026-04-01' = {
  parent: storage
  name: 'default'
  properties: {}
}

resource packages 'Microsoft.Storage/storageAccounts/blobServices/containers@2026-04-01' = {
  parent: blobs
  name: packageContainer
  properties: {
    publicAccess: 'None'
  }
}

resource queueService 'Microsoft.Storage/storageAccounts/queueServices@2026-04-01' = {
  parent: storage
  name: 'default'
  properties: {}
}

resource queue 'Microsoft.Storage/storageAccounts/queueServices/queues@2026-04-01' = [for queueName in allQueues: {
  parent: queueService
  name: queueName
}]

resource poisonQueue 'Microsoft.Storage/storageAccounts/queueServices/queues@2026-04-01' = [for queueName in allQueues: {
  parent: queueService
  name: '${queueName}-poison'
}]

resource tableService 'Microsoft.Storage/storageAccounts/tableServices@2026-04-01' = {
  parent: storage
  name: 'default'
  properties: {}
}

resource scheduledTable 'Microsoft.Storage/storageAccounts/tableServices/tables@2026-04-01' = {
  parent: tableService
  name: 'asynccallerscheduled'
}

resource outcomesTable 'Microsoft.Storage/storageAccounts/tableServices/tables@2026-04-01' = {
  parent: tableService
  name: 'asynccallerrun'
}

resource appTable 'Microsoft.Storage/storageAccounts/tableServices/tables@2026-04-01' = {
  parent: tableService
  name: 'asynccallerapp'
}

resource sightTable 'Microsoft.Storage/storageAccounts/tableServices/tables@2026-04-01' = {
  parent: tableService
  name: 'asynccallersight'
}

resource identity 'Microsoft.ManagedIdentity/userAssignedIdentities@2024-11-30' = {
  name: resourceName
  location: location
  tags: tags
}

// README.md says what each role is for.
@description('Storage Queue Data Contributor')
var queueContributor = '974c5e8b-45b9-4653-ba55-5f855dd0fb88'

@description('Storage Table Data Contributor')
var tableContributor = '0a9a7e1f-b9d0-4cc4-a60d-0319b160aaa3'

@description('Storage Blob Data Owner')
var blobOwner = 'b7e6dc6d-f1e8-4753-8033-0f276bb0955b'

@description('Storage Blob Data Contributor')
var blobContributor = 'ba92f5b4-2d11-453d-a403-e96b0029c9fe'

@description('Storage Queue Data Reader')
var queueReader = '19e7f393-937e-4f77-808e-94535e297925'

@description('Storage Table Data Reader')
var tableReader = '76199698-9eea-4c19-bc75-cec21354c6b6'

@description('Monitoring Metrics Publisher')
var metricsPublisher = '3913510d-42f4-4e42-8a64-420c390055eb'

resource storageRole 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for role in [queueContributor, tableContributor, blobOwner]: {
  scope: storage
  name: guid(storage.id, identity.id, role)
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', role)
    principalId: identity.properties.principalId
    principalType: 'ServicePrincipal'
  }
}]

resource insightsRole 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  scope: insights
  name: guid(insights.id, identity.id, metricsPublisher)
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', metricsPublisher)
    principalId: identity.properties.principalId
    principalType: 'ServicePrincipal'
  }
}

resource operatorRole 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for role in [queueContributor, tableContributor, blobContributor]: if (!empty(operatorPrincipalId)) {
  scope: storage
  name: guid(storage.id, operatorPrincipalId, role)
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', role)
    principalId: operatorPrincipalId
    principalType: operatorPrincipalType
  }
}]

resource viewerRole 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for role in [queueReader, tableReader]: if (!empty(viewerGroupId)) {
  scope: storage
  name: guid(storage.id, viewerGroupId, role)
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', role)
    principalId: viewerGroupId
    principalType: 'Group'
  }
}]

resource workspace 'Microsoft.OperationalInsights/workspaces@2026-03-01' = {
  name: resourceName
  location: location
  tags: tags
  properties: {
    sku: {
      name: 'PerGB2018'
    }
    retentionInDays: 30
    workspaceCapping: {
      dailyQuotaGb: logQuotaGb
    }
  }
}

resource insights 'Microsoft.Insights/components@2020-02-02' = {
  name: resourceName
  location: location
  tags: tags
  kind: 'web'
  properties: {
    Application_Type: 'web'
    WorkspaceResourceId: workspace.id
    DisableLocalAuth: true
  }
}

// The subnets are resources of their own. If the network listed them, provisioning again would delete all others.
resource network 'Microsoft.Network/virtualNetworks@2026-01-01' = if (ownNetwork) {
  name: resourceName
  location: location
  tags: tags
  properties: {
    addressSpace: {
      addressPrefixes: [virtualNetworkPrefix]
    }
  }
}

resource appSubnet 'Microsoft.Network/virtualNetworks/subnets@2026-01-01' = if (ownNetwork) {
  parent: network
  name: 'app'
  properties: {
    addressPrefix: subnetPrefixes[0]
    delegations: [
      {
        name: 'app'
        properties: {
          serviceName: flex ? 'Microsoft.App/environments' : 'Microsoft.Web/serverFarms'
        }
      }
    ]
  }
}

resource endpointSubnet 'Microsoft.Network/virtualNetworks/subnets@2026-01-01' = if (ownNetwork) {
  parent: network
  name: 'endpoints'
  properties: {
    addressPrefix: subnetPrefixes[1]
    defaultOutboundAccess: false
  }
  dependsOn: [appSubnet] // Azure refuses two changes of a network at the same time.
}

resource zone 'Microsoft.Network/privateDnsZones@2024-06-01' = [
  for service in storageServices: if (closed && ownNetwork && empty(service.zoneId)) {
    name: 'privatelink.${service.name}.${environment().suffixes.storage}'
    location: 'global'
    tags: tags
  }
]

// Two apps in one group have the same zones, so a link has the name of its app.
resource zoneLink 'Microsoft.Network/privateDnsZones/virtualNetworkLinks@2024-06-01' = [
  for (service, i) in storageServices: if (closed && ownNetwork && empty(service.zoneId)) {
    parent: zone[i]
    name: resourceName
    location: 'global'
    tags: tags
    properties: {
      registrationEnabled: false
      virtualNetwork: {
        id: network.id
      }
    }
  }
]

@batchSize(1)
resource endpoint 'Microsoft.Network/privateEndpoints@2026-01-01' = [for service in storageServices: if (closed) {
  name: '${name}-${service.name}-${token}'
  location: location
  tags: tags
  properties: {
    subnet: {
      id: endpointsId
    }
    privateLinkServiceConnections: [
      {
        name: service.name
        properties: {
          privateLinkServiceId: storage.id
          groupIds: [service.name]
        }
      }
    ]
  }
}]

resource zoneGroup 'Microsoft.Network/privateEndpoints/privateDnsZoneGroups@2026-01-01' = [
  for (service, i) in storageServices: if (closed && (ownNetwork || !empty(service.zoneId))) {
    parent: endpoint[i]
    name: 'default'
    properties: {
      privateDnsZoneConfigs: [
        {
          name: service.name
          properties: {
            privateDnsZoneId: empty(service.zoneId) ? zone[i].id : service.zoneId
          }
        }
      ]
    }
  }
]

resource appZone 'Microsoft.Network/privateDnsZones@2024-06-01' = if (appClosed && ownNetwork && empty(sitesZoneId)) {
  name: 'privatelink.azurewebsites.net'
  location: 'global'
  tags: tags
}

resource appZoneLink 'Microsoft.Network/privateDnsZones/virtualNetworkLinks@2024-06-01' = if (appClosed && ownNetwork && empty(sitesZoneId)) {
  parent: appZone
  name: resourceName
  location: 'global'
  tags: tags
  properties: {
    registrationEnabled: false
    virtualNetwork: {
      id: network.id
    }
  }
}

resource appEndpoint 'Microsoft.Network/privateEndpoints@2026-01-01' = if (appClosed) {
  name: '${name}-sites-${token}'
  location: location
  tags: tags
  properties: {
    subnet: {
      id: endpointsId
    }
    privateLinkServiceConnections: [
      {
        name: 'sites'
        properties: {
          privateLinkServiceId: app.id
          groupIds: ['sites']
        }
      }
    ]
  }
}

resource appZoneGroup 'Microsoft.Network/privateEndpoints/privateDnsZoneGroups@2026-01-01' = if (appClosed && (ownNetwork || !empty(sitesZoneId))) {
  parent: appEndpoint
  name: 'default'
  properties: {
    privateDnsZoneConfigs: [
      {
        name: 'sites'
        properties: {
          privateDnsZoneId: empty(sitesZoneId) ? appZone.id : sitesZoneId
        }
      }
    ]
  }
}

// The plans are two resources, because the compiler checks the properties only of a known kind.
resource flexPlan 'Microsoft.Web/serverfarms@2025-03-01' = if (flex) {
  name: resourceName
  location: location
  tags: tags
  kind: 'functionapp'
  sku: {
    name: 'FC1'
    tier: 'FlexConsumption'
  }
  properties: {
    reserved: true
    zoneRedundant: zoneRedundant
  }
}

resource premiumPlan 'Microsoft.Web/serverfarms@2025-03-01' = if (!flex) {
  name: resourceName
  location: location
  tags: tags
  kind: 'elastic'
  sku: {
    name: premiumSize
    tier: 'ElasticPremium'
    capacity: premiumInstances
  }
  properties: {
    reserved: true
    maximumElasticWorkerCount: maximumInstanceCount
    zoneRedundant: zoneRedundant
  }
}

resource app 'Microsoft.Web/sites@2025-03-01' = {
  name: resourceName
  location: location
  tags: union(tags, { 'azd-service-name': 'async-caller' })
  kind: 'functionapp,linux'
  identity: {
    type: 'UserAssigned'
    userAssignedIdentities: {
      '${identity.id}': {}
    }
  }
  properties: {
    serverFarmId: flex ? flexPlan.id : premiumPlan.id
    httpsOnly: true
    publicNetworkAccess: appClosed ? 'Disabled' : 'Enabled'
    clientAffinityEnabled: false
    keyVaultReferenceIdentity: identity.id
    virtualNetworkSubnetId: inNetwork ? callSubnetId : null
    // Without it, Elastic Premium sends only calls to private addresses through the network.
    outboundVnetRouting: inNetwork && !flex ? { applicationTraffic: true } : null
    // Flex Consumption refuses most members of siteConfig, even if they are null: they must be absent there.
    siteConfig: union({ minTlsVersion: '1.2' }, flex ? {} : {
      ftpsState: 'Disabled'
      functionAppScaleLimit: maximumInstanceCount
      minimumElasticInstanceCount: premiumInstances
      // The platform cannot read the queues of a closed account, so the host tells it when to scale.
      functionsRuntimeScaleMonitoringEnabled: closed
    })
    functionAppConfig: flex ? {
      runtime: {
        name: 'custom'
        version: '1.0'
      }
      deployment: {
        storage: {
          type: 'blobContainer'
          value: '${storage.properties.primaryEndpoints.blob}${packageContainer}'
          authentication: {
            type: 'UserAssignedIdentity'
            userAssignedIdentityResourceId: identity.id
          }
        }
      }
      scaleAndConcurrency: {
        instanceMemoryMB: instanceMemoryMB
        maximumInstanceCount: mostInstances
      }
    } : null
  }
  dependsOn: [
    packages
    queue
    poisonQueue
    scheduledTable
    outcomesTable
    storageRole
    insightsRole
    endpointSubnet
    zoneLink
    endpoint
    zoneGroup
  ]
}

@description('How the host reaches the storage account and Application Insights.')
var identitySettings = {
  AzureWebJobsStorage__accountName: storage.name
  AzureWebJobsStorage__credential: 'managedidentity'
  AzureWebJobsStorage__clientId: identity.properties.clientId
  APPLICATIONINSIGHTS_CONNECTION_STRING: insights.properties.ConnectionString
  APPLICATIONINSIGHTS_AUTHENTICATION_STRING: 'ClientId=${identity.properties.clientId};Authorization=AAD'
}

// docs/log.md recommends the level, and no records of the host's own calls. The log must not be sampled: alerts count
// its lines.
@description('Settings of the host for its log.')
var logSettings = {
  AzureFunctionsJobHost__logging__logLevel__Function: 'Warning'
  AzureFunctionsJobHost__logging__applicationInsights__samplingSettings__excludedTypes: 'Trace'
  AzureFunctionsJobHost__logging__applicationInsights__enableDependencyTracking: 'false'
}

// Posts for routes (docs/http.md): larger ones have no room in a message, and each takes six times its size of the host.
// host.json bounds their number.
@description('The bound of the memory that requests of clients take.')
var requestSettings = {
  FUNCTIONS_REQUEST_BODY_SIZE_LIMIT: '1048576'
}

@description('Elastic Premium would need a shared key for a file share, so it runs from the package in its container.')
var premiumSettings = {
  FUNCTIONS_EXTENSION_VERSION: '~4'
  FUNCTIONS_WORKER_RUNTIME: 'custom'
  WEBSITE_RUN_FROM_PACKAGE: '${storage.properties.primaryEndpoints.blob}${packageContainer}/${packageName}'
  WEBSITE_RUN_FROM_PACKAGE_BLOB_MI_RESOURCE_ID: identity.id
}

resource appSettings 'Microsoft.Web/sites/config@2025-03-01' = {
  parent: app
  name: 'appsettings'
  properties: union(identitySettings, logSettings, requestSettings, flex ? {} : premiumSettings, settings)
}

// Deployments authenticate with Microsoft Entra ID, never with a publishing password.
resource ftpPasswords 'Microsoft.Web/sites/basicPublishingCredentialsPolicies@2025-03-01' = if (!flex) {
  parent: app
  name: 'ftp'
  properties: {
    allow: false
  }
}

resource scmPasswords 'Microsoft.Web/sites/basicPublishingCredentialsPolicies@2025-03-01' = if (!flex) {
  parent: app
  name: 'scm'
  properties: {
    allow: false
  }
}

module alerts 'alerts.bicep' = {
  params: {
    name: name
    token: token
    location: location
    tags: tags
    scopeId: insights.id
    alertEmail: alertEmail
    actionGroupIds: actionGroupIds
  }
}

// docs/operating.md describes it. The name of a workbook must be a GUID.
resource workbook 'Microsoft.Insights/workbooks@2023-06-01' = {
  name: guid(insights.id, 'workbook')
  location: location
  tags: tags
  kind: 'shared'
  properties: {
    displayName: 'Async Caller: ${name}'
    category: 'workbook'
    sourceId: insights.id
    serializedData: string(union(loadJsonContent('workbook.json'), { fallbackResourceIds: [insights.id] }))
  }
}

@description('Name of the function app.')
output appName string = app.name

@description('Name of the storage account.')
output accountName string = storage.name

// Azure changes the letter case of a name that begins with a capital. azd, which expects these two, changes it back.
@description('Region of the resources.')
output AZURE_LOCATION string = location

@description('Tenant of the resources.')
output AZURE_TENANT_ID string = tenant().tenantId
